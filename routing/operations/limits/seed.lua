-- Say what has been used of budgets, where that has not been said before.
-- KEYS: the counters. ARGV: how long leases last, then for each what is used, and its end (or 0).
for i = 1, #KEYS do
  if redis.call('HSETNX', KEYS[i], 'seeded', 1) == 1 then
    local used, ends = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
    local here = tonumber(redis.call('HGET', KEYS[i], 'used') or '0')
    redis.call('HSET', KEYS[i], 'used', exact(math.max(used, here)))
    if ends > 0 then
      redis.call('EXPIREAT', KEYS[i], math.ceil(ends + 2 * tonumber(ARGV[1])))
    end
  end
end
return 1
