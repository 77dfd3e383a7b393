-- What is kept by the first of KEYS by which there is something.
-- A value begins with 'v', and with 'p' what names the key of one.
for _, key in ipairs(KEYS) do
  local found = redis.call('GET', key)
  if found and found:sub(1, 1) == 'p' then
    found = redis.call('GET', found:sub(2))
  end
  if found then
    return found:sub(2)
  end
end
return false
