-- Make what a process reserves of one counter be what it says: what is missing is there again, as
-- after a loss of data, what it has is not to run out, and what it has no more is free.
-- KEYS: the clock, the counter, the times of its leases, then for each lease the mark that says that
--       it was settled.
-- ARGV: what the names of the process's leases begin with, how long leases last, what drains in a
--       second, the end (or 0), the number of the first lease that it says nothing of, then for each
--       lease its name and what it reserves, or '' where it is only just being taken.
-- Without a counter this only asks whether anything can be written. Returns the epoch.
local process, lasts, from = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[5])
local now, epoch = moved_on(KEYS[1], process .. ARGV[5])
if not KEYS[2] then
  return epoch
end
local counter = {
  key = KEYS[2], times = KEYS[3], drains = tonumber(ARGV[3]), ends = tonumber(ARGV[4]),
}
read(counter, now)
local said = {}
for i = 4, #KEYS do
  local lease, reserve = ARGV[2 * i - 2], ARGV[2 * i - 1]
  said[lease] = true
  if reserve ~= '' and redis.call('GET', KEYS[i]) ~= SETTLED then
    if redis.call('HSETNX', counter.key, lease, reserve) == 1 then
      counter.reserved = counter.reserved + tonumber(reserve)
    end
    redis.call('ZADD', counter.times, exact(now + lasts), lease)
  end
end
for _, lease in ipairs(redis.call('ZRANGE', counter.times, 0, -1)) do
  if string.sub(lease, 1, #process) == process and not said[lease]
      and tonumber(string.sub(lease, #process + 1)) < from then
    release(counter, lease)
  end
end
write(counter, now, lasts)
return epoch
