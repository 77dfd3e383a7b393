-- Say what has been used of budgets: at least so much, as it may be known here already.
-- KEYS: the counters. ARGV: how long leases last, then for each what is used, and its end (or 0).
for i = 1, #KEYS do
  local used, ends = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
  if used > tonumber(redis.call('HGET', KEYS[i], 'used') or '0') then
    redis.call('HSET', KEYS[i], 'used', exact(used))
    if ends > 0 then
      redis.call('EXPIREAT', KEYS[i], math.ceil(ends + 2 * tonumber(ARGV[1])))
    end
  end
end
return 1
