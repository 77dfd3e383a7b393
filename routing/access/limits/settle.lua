-- Free what a lease reserved and count what was used, once.
-- KEYS: the clock, a mark that says whether the lease was taken or settled, then for each charge its
--       counter and the times of its leases.
-- ARGV: the lease, how long leases last, then for each charge what drains in a second, the end
--       (or 0), and what was used; then for each charge what was to be used at once, which is
--       counted if the lease was never taken.
local mark = redis.call('GET', KEYS[2])
if mark == SETTLED then
  return 0
end
redis.call('SET', KEYS[2], SETTLED, 'EX', 3600)
local charges = (#KEYS - 2) / 2
local lease, lasts = ARGV[1], tonumber(ARGV[2])
local now = moved_on(KEYS[1], lease)
for i = 3, #KEYS, 2 do
  local a = 3 + ((i - 1) / 2 - 1) * 3
  local counter = {
    key = KEYS[i], times = KEYS[i + 1], drains = tonumber(ARGV[a]), ends = tonumber(ARGV[a + 1]),
  }
  read(counter, now)
  release(counter, lease)
  counter.used = counter.used + amount(ARGV[a + 2])
  if mark ~= TAKEN then
    counter.used = counter.used + amount(ARGV[3 + 3 * charges + (i - 3) / 2])
  end
  write(counter, now, lasts)
end
return 1
