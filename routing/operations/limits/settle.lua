-- Free what a lease reserved and count what was used, once.
-- KEYS and ARGV: as `change_charges` takes them; the mark says that this was done, the amounts are
--                what was used.
if not redis.call('SET', KEYS[2], 1, 'NX', 'EX', 3600) then
  return 0
end
return change_charges(function(counter, lease, used)
  release(counter, lease)
  counter.used = counter.used + used
end)
