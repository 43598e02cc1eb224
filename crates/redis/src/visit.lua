-- Each element of ARGV asks about its one key: "value" for what is stored there, "server" for who has it, or a cursor for the next keys
-- of this server.
local out = {}
for i = 1, #ARGV do
  if ARGV[i] == "value" then
    local kind = redis.call("TYPE", KEYS[i]).ok
    if kind == "none" then
      out[i] = "n"
    elseif kind == "string" then
      out[i] = "s" .. redis.call("PTTL", KEYS[i]) .. " " .. redis.call("GET", KEYS[i])
    elseif kind == "list" and string.byte(KEYS[i], 10) == 43 then
      -- What a log keeps beside its value: its blocks, without their index.
      out[i] = "s" .. redis.call("PTTL", KEYS[i]) .. " " .. table.concat(redis.call("LRANGE", KEYS[i], 1, -1))
    else
      out[i] = "x" .. kind
    end
  elseif ARGV[i] == "server" then
    out[i] = string.match(redis.call("INFO", "server"), "run_id:(%x+)")
  else
    local page = redis.call("SCAN", ARGV[i], "MATCH", "tg1:{*", "COUNT", "1000")
    local parts = { page[1], " " }
    for _, key in ipairs(page[2]) do
      parts[#parts + 1] = #key .. ":" .. key
    end
    out[i] = table.concat(parts)
  end
end
return out
