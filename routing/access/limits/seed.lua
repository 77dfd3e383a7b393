-- Say what has been used of budgets: at least so much, as it may be known here already.
-- Returns what is used and reserved of each then.
-- KEYS: the counters. ARGV: how long leases last, then for each what is used, and its end (or 0).
local reply = {}
for i = 1, #KEYS do
  local used, ends = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
  if used > tonumber(redis.call('HGET', KEYS[i], 'used') or '0') then
    redis.call('HSET', KEYS[i], 'used', exact(used))
    if ends > 0 then
      redis.call('EXPIREAT', KEYS[i], math.ceil(ends + 2 * tonumber(ARGV[1])))
    end
  end
  local kept = redis.call('HMGET', KEYS[i], 'used', 'reserved')
  reply[i] = exact(tonumber(kept[1] or '0') + tonumber(kept[2] or '0'))
end
return reply
