-- Take all of a request's charges, if there is room for each; else none.
-- KEYS: the clock, a mark that says whether the lease was taken or settled, then for each charge its
--       counter and the times of its leases.
-- ARGV: the lease, how long it lasts without being renewed, then for each charge
--       the limit, what drains in a second, what to reserve, what to use, and the end (or 0).
-- Returns whether they were taken, the epoch, then for each charge what is used and reserved.
local lease, lasts = ARGV[1], tonumber(ARGV[2])
local now, epoch = moved_on(KEYS[1], lease)
local mark = redis.call('GET', KEYS[2])
-- Asked a second time, as the first answer was lost.
local again = mark == TAKEN
local room, counters = true, {}
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
  counters[#counters + 1] = each
end
-- What hung may come after its own settlement, when nobody is left to free what it takes.
local settled = mark == SETTLED
local reply = { ((room or again) and not settled) and 1 or 0, epoch }
if room and not again and not settled then
  redis.call('SET', KEYS[2], TAKEN, 'EX', 3600)
end
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
