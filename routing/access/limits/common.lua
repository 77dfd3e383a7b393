-- What the scripts share; it stands before each of them.
-- A counter is a hash: `used` as of `at`, `reserved` in all, and what each lease reserves.

-- What the mark of a lease says.
local TAKEN, SETTLED = 'taken', '1'

local function exact(number)
  return string.format('%.17g', number)
end

-- What is reserved or used: never less than nothing, which would make room for others.
local function amount(text)
  return math.max(0, tonumber(text))
end

-- The time in seconds, on a clock that stands still where the server's goes back, and the epoch:
-- another one, `new`, begins where all was lost.
local function moved_on(key, new)
  local time = redis.call('TIME')
  local raw = tonumber(time[1]) + tonumber(time[2]) / 1000000
  local last = redis.call('HMGET', key, 'raw', 'now', 'epoch')
  local now, epoch = raw, last[3] or new
  if last[1] then
    now = tonumber(last[2]) + math.max(0, raw - tonumber(last[1]))
  end
  redis.call('HSET', key, 'raw', exact(raw), 'now', exact(now), 'epoch', epoch)
  return now, epoch
end

local function release(counter, lease)
  local reserved = redis.call('HGET', counter.key, lease)
  redis.call('ZREM', counter.times, lease)
  if not reserved then
    return
  end
  redis.call('HDEL', counter.key, lease)
  counter.reserved = counter.reserved - tonumber(reserved)
  -- What is left over of fractions ends with the last lease.
  if redis.call('ZCARD', counter.times) == 0 then
    counter.reserved = 0
  end
end

-- Fill in `used` and `reserved` as they are now; leases whose process is gone have run out.
local function read(counter, now)
  local kept = redis.call('HMGET', counter.key, 'used', 'at', 'reserved')
  local used, at = tonumber(kept[1] or '0'), tonumber(kept[2] or exact(now))
  counter.used = math.max(0, used - math.max(0, now - at) * counter.drains)
  counter.reserved = tonumber(kept[3] or '0')
  for _, lease in ipairs(redis.call('ZRANGEBYSCORE', counter.times, '-inf', exact(now))) do
    release(counter, lease)
  end
end

-- Keep it, for as long as it says anything.
local function write(counter, now, lasts)
  redis.call('HSET', counter.key, 'used', exact(counter.used), 'at', exact(now),
    'reserved', exact(counter.reserved))
  if counter.drains > 0 then
    local seconds = math.ceil(counter.used / counter.drains + 2 * lasts)
    redis.call('EXPIRE', counter.key, seconds)
    redis.call('EXPIRE', counter.times, seconds)
  elseif counter.ends > 0 then
    redis.call('EXPIREAT', counter.key, math.ceil(counter.ends + 2 * lasts))
    redis.call('EXPIREAT', counter.times, math.ceil(counter.ends + 2 * lasts))
  end
end
