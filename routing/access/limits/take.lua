-- Take all of a request's charges, if there is room for each; else none.
-- KEYS: the clock, a mark that says that the lease was settled, then for each charge its counter and
--       the times of its leases.
-- ARGV: the lease, how long it lasts without being renewed, then for each charge
--       the limit, what drains in a second, what to reserve, what to use, and the end (or 0).
-- Returns whether they were taken, the epoch, then for each charge what is used and reserved.
local lease, lasts = ARGV[1], tonumber(ARGV[2])
local now, epoch = moved_on(KEYS[1], lease)
local room, again, counters = true, false, {}
for i = 3, #KEYS, 2 do
  local a = 3 + ((i - 1) / 2 - 1) * 5
  local each = {
    key = KEYS[i], times = KEYS[i + 1], drains = tonumber(ARGV[a + 1]),
    reserve = amount(ARGV[a + 2]), use = amount(ARGV[a + 3]), ends = tonumber(ARGV[a + 4]),
  }
  read(each, now)
  local limit = tonumber(ARGV[a])
  if each.used + each.reserved + each.reserve + each.use - limit > 1e-9 * limit then
    room = false
  end
  -- Asked a second time, as the first answer was lost.
  if each.reserve > 0 and redis.call('HEXISTS', each.key, lease) == 1 then
    again = true
  end
  counters[#counters + 1] = each
end
-- What hung may come after its own settlement, when nobody is left to free what it takes.
local settled = redis.call('EXISTS', KEYS[2]) == 1
local reply = { ((room or again) and not settled) and 1 or 0, epoch }
for _, each in ipairs(counters) do
  if room and not again and not settled then
    each.used = each.used + each.use
    if each.reserve > 0 then
      redis.call('HSET', each.key, lease, exact(each.reserve))
      redis.call('ZADD', each.times, exact(now + lasts), lease)
      each.reserved = each.reserved + each.reserve
    end
  end
  write(each, now, lasts)
  reply[#reply + 1] = exact(each.used)
  reply[#reply + 1] = exact(each.reserved)
end
return reply
