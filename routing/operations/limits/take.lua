-- Take all of a request's charges, if there is room for each; else none.
-- KEYS: the clock, then for each charge its counter and the times of its leases.
-- ARGV: the lease, how long it lasts without being renewed, then for each charge
--       the limit, what drains in a second, what to reserve, what to use, and the end (or 0).
-- Returns whether they were taken, then for each charge what is used and reserved.
local now = moved_on(KEYS[1])
local lease, lasts = ARGV[1], tonumber(ARGV[2])
local room, counters = true, {}
for i = 2, #KEYS, 2 do
  local a = 3 + (i / 2 - 1) * 5
  local each = {
    key = KEYS[i], times = KEYS[i + 1], drains = tonumber(ARGV[a + 1]),
    reserve = tonumber(ARGV[a + 2]), use = tonumber(ARGV[a + 3]), ends = tonumber(ARGV[a + 4]),
  }
  read(each, now)
  local limit = tonumber(ARGV[a])
  if each.used + each.reserved + each.reserve + each.use - limit > 1e-9 * limit then
    room = false
  end
  counters[#counters + 1] = each
end
local reply = { room and 1 or 0 }
for _, each in ipairs(counters) do
  if room then
    each.used = each.used + each.use
    if each.reserve > 0 and redis.call('HSETNX', each.key, lease, exact(each.reserve)) == 1 then
      each.reserved = each.reserved + each.reserve
      redis.call('ZADD', each.times, exact(now + lasts), lease)
    end
  end
  write(each, now, lasts)
  reply[#reply + 1] = exact(each.used)
  reply[#reply + 1] = exact(each.reserved)
end
return reply
