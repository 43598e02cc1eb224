-- Requests that are done later, shared by gateways. Each element of ARGV is one question, about the requests under its one key: a letter and
-- texts behind their lengths. Every question may be asked twice: the second time changes nothing.
--
--   KEYS[i]:order   a stream: the names of those that wait or are on their way, in the order of arrival
--   KEYS[i]:dead    a sorted set: the names of those that were put aside, by when
--   KEYS[i]:lines   a hash: how many wait in each line
--   KEYS[i]:bytes   how large all of these are together
--   KEYS[i]:turn    who sends them at present; it runs out
--   KEYS[i]:turns   how often it was somebody's turn who did not have it before
--   KEYS[i]:e:ID    a hash: s what became of it, p the request, k the kind of s, l its line, x its place in the stream, b its bytes,
--                   g who began with it

local function texts(question)
  local list, at = {}, 2
  while at <= #question do
    local length = struct.unpack(">I4", question, at)
    list[#list + 1] = string.sub(question, at + 4, at + 3 + length)
    at = at + 4 + length
  end
  return list
end

local function joined(list)
  local parts = {}
  for _, text in ipairs(list) do
    parts[#parts + 1] = struct.pack(">I4", #text)
    parts[#parts + 1] = text
  end
  return table.concat(parts)
end

local function enter(base, key, id, line)
  local place = redis.call("HINCRBY", base .. ":lines", line, 1)
  redis.call("HSET", key, "k", "w", "x", redis.call("XADD", base .. ":order", "*", "id", id))
  return place
end

local function leave(base, key, id, was)
  if was == "x" then
    redis.call("ZREM", base .. ":dead", id)
    return
  end
  local known = redis.call("HMGET", key, "l", "x")
  redis.call("XDEL", base .. ":order", known[2])
  if redis.call("HINCRBY", base .. ":lines", known[1], -1) <= 0 then
    redis.call("HDEL", base .. ":lines", known[1])
  end
end

local ask = {}

-- Keeps one: its name, what became of it, the request, its line, and the most requests, bytes and requests of a line.
function ask.p(base, text)
  local id, key = text[1], base .. ":e:" .. text[1]
  if redis.call("EXISTS", key) == 1 then
    return "o1"
  end
  if redis.call("XLEN", base .. ":order") + redis.call("ZCARD", base .. ":dead") >= tonumber(text[5]) then
    return "r"
  end
  if tonumber(redis.call("GET", base .. ":bytes") or "0") + #text[3] > tonumber(text[6]) then
    return "b"
  end
  if tonumber(redis.call("HGET", base .. ":lines", text[4]) or "0") >= tonumber(text[7]) then
    return "l"
  end
  redis.call("INCRBY", base .. ":bytes", #text[3])
  redis.call("HSET", key, "s", text[2], "p", text[3], "l", text[4], "b", #text[3])
  return "o" .. enter(base, key, id, text[4])
end

-- Says what became of one: its name, who says so, what, of which kind, and for how many milliseconds that is kept. Only whose turn it is may
-- begin with one or put it aside, and with one that another has begun only after saying that it waits again; that a server has answered is true
-- whoever says it.
function ask.m(base, text)
  local id, key, kind = text[1], base .. ":e:" .. text[1], text[4]
  local was = redis.call("HGET", key, "k")
  if not was or (was == "d" and kind ~= "d") or (was == "x" and kind ~= "d" and kind ~= "x") then
    return "n"
  end
  if kind ~= "d" and redis.call("GET", base .. ":turn") ~= text[2] then
    return "n"
  end
  if kind == "b" then
    if was == "b" and redis.call("HGET", key, "g") ~= text[2] then
      return "n"
    end
    redis.call("HSET", key, "g", text[2])
  end
  if was ~= kind and (kind == "d" or kind == "x") then
    leave(base, key, id, was)
    if kind == "d" then
      redis.call("DECRBY", base .. ":bytes", redis.call("HGET", key, "b"))
      redis.call("HDEL", key, "p")
      redis.call("PEXPIRE", key, text[5])
    else
      redis.call("ZADD", base .. ":dead", redis.call("TIME")[1], id)
    end
  end
  redis.call("HSET", key, "s", text[3], "k", kind)
  return "o"
end

-- One that was put aside waits again, behind all others: its name, and what became of it.
function ask.a(base, text)
  local id, key = text[1], base .. ":e:" .. text[1]
  local was = redis.call("HGET", key, "k")
  if was == "x" then
    leave(base, key, id, was)
    redis.call("HSET", key, "s", text[2])
    enter(base, key, id, redis.call("HGET", key, "l"))
  elseif was ~= "w" then
    return "n"
  end
  return "o"
end

-- Forgets one: its name.
function ask.d(base, text)
  local id, key = text[1], base .. ":e:" .. text[1]
  local was = redis.call("HGET", key, "k")
  if not was then
    return "n"
  elseif was == "b" then
    return "t"
  elseif was ~= "d" then
    leave(base, key, id, was)
    redis.call("DECRBY", base .. ":bytes", redis.call("HGET", key, "b"))
  end
  redis.call("DEL", key)
  return "o"
end

local function counts(base, first)
  return {
    first,
    tostring(redis.call("XLEN", base .. ":order")),
    tostring(redis.call("ZCARD", base .. ":dead")),
    redis.call("GET", base .. ":bytes") or "0",
  }
end

-- Asks for the turn, or for more of it: who asks, after which place of the stream, and for how many milliseconds. Answers whose turn it is
-- and how many there are; whose turn it is gets the number of the turn and those who wait, others the lines that somebody waits in.
function ask.t(base, text)
  local holder = redis.call("GET", base .. ":turn")
  if holder and holder ~= text[1] then
    local list = counts(base, "f")
    if redis.call("HLEN", base .. ":lines") <= 1000 then
      for _, line in ipairs(redis.call("HKEYS", base .. ":lines")) do
        list[#list + 1] = line
      end
    end
    return joined(list)
  end
  local turns = redis.call("INCRBY", base .. ":turns", holder and 0 or 1)
  redis.call("SET", base .. ":turn", text[1], "PX", text[3])
  local list = counts(base, "h" .. turns)
  for _, row in ipairs(redis.call("XRANGE", base .. ":order", text[2], "+", "COUNT", 100)) do
    list[#list + 1] = row[1]
    list[#list + 1] = redis.call("HGET", base .. ":e:" .. row[2][2], "s") or ""
  end
  return joined(list)
end

-- Gives the turn back: whose it is.
function ask.u(base, text)
  if redis.call("GET", base .. ":turn") == text[1] then
    redis.call("DEL", base .. ":turn")
  end
  return "o"
end

-- The request of this name, and what became of it.
function ask.r(base, text)
  return redis.call("HGET", base .. ":e:" .. text[1], "p") or ""
end

function ask.s(base, text)
  return redis.call("HGET", base .. ":e:" .. text[1], "s") or ""
end

-- How many wait, were put aside, and how large they are; and the first so many of each of these two.
function ask.q(base, text)
  local list = counts(base, "q")
  local most = tonumber(text[1])
  local names = {}
  for _, row in ipairs(redis.call("XRANGE", base .. ":order", "-", "+", "COUNT", most)) do
    names[#names + 1] = row[2][2]
  end
  for _, id in ipairs(redis.call("ZRANGE", base .. ":dead", 0, most - 1)) do
    names[#names + 1] = id
  end
  for _, id in ipairs(names) do
    list[#list + 1] = redis.call("HGET", base .. ":e:" .. id, "s") or ""
  end
  return joined(list)
end

local out = {}
for i = 1, #ARGV do
  out[i] = ask[string.sub(ARGV[i], 1, 1)](KEYS[i], texts(ARGV[i]))
end
return out
