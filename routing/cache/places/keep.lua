-- Keep a reply by several keys, and make room for it.
-- KEYS: the replies by the time when they were kept, their sizes, what these come to, then the key
-- of the reply and its other keys.
-- ARGV: the reply, when it was kept, how long it is, how long it stays, what all may come to.
local ages, sizes, total, first = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local kept_at, size, ttl, most = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

local function forget(name, delete)
  local had = redis.call('HGET', sizes, name)
  if had then
    redis.call('HDEL', sizes, name)
    redis.call('DECRBY', total, had)
  end
  redis.call('ZREM', ages, name)
  if delete then
    redis.call('DEL', name)
  end
end

for _, name in ipairs(redis.call('ZRANGEBYSCORE', ages, '-inf', kept_at - ttl, 'LIMIT', 0, 100)) do
  forget(name, true)
end
forget(first, false)
local lasts = math.max(1, math.ceil(ttl * 1000))
redis.call('SET', first, 'v' .. ARGV[1], 'PX', lasts)
for at = 5, #KEYS do
  redis.call('SET', KEYS[at], 'p' .. first, 'PX', lasts)
end
redis.call('ZADD', ages, kept_at, first)
redis.call('HSET', sizes, first, size)
local held = redis.call('INCRBY', total, size)
while held > most do
  local oldest = redis.call('ZRANGE', ages, 0, 0)[1]
  if not oldest then
    redis.call('SET', total, 0)
    break
  end
  forget(oldest, true)
  held = tonumber(redis.call('GET', total))
end
-- What says how much there is goes with the last of it.
for at = 1, 3 do
  redis.call('PEXPIRE', KEYS[at], 2 * lasts)
end
return held
