-- Say that a lease is still wanted; one that had run out is there again.
-- KEYS: the clock, a mark that says that it was settled, then for each charge its counter and the
--       times of its leases.
-- ARGV: the lease, how long it lasts, then for each charge what drains in a second, the end (or 0),
--       and what is reserved.
if redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
local now = moved_on(KEYS[1])
local lease, lasts = ARGV[1], tonumber(ARGV[2])
for i = 3, #KEYS, 2 do
  local a = 3 + ((i - 1) / 2 - 1) * 3
  local each = {
    key = KEYS[i], times = KEYS[i + 1], drains = tonumber(ARGV[a]), ends = tonumber(ARGV[a + 1]),
  }
  local reserve = tonumber(ARGV[a + 2])
  read(each, now)
  if reserve > 0 then
    if redis.call('HSETNX', each.key, lease, exact(reserve)) == 1 then
      each.reserved = each.reserved + reserve
    end
    redis.call('ZADD', each.times, exact(now + lasts), lease)
  end
  write(each, now, lasts)
end
return 1
