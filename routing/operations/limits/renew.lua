-- Say that a lease is still wanted; one that had run out is there again.
-- KEYS and ARGV: as `change_charges` takes them; the mark says that the lease was settled, the
--                amounts are what is reserved.
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
return change_charges(function(counter, lease, reserve, runs_out)
  if reserve > 0 then
    if redis.call('HSETNX', counter.key, lease, exact(reserve)) == 1 then
      counter.reserved = counter.reserved + reserve
    end
    redis.call('ZADD', counter.times, exact(runs_out), lease)
  end
end)
