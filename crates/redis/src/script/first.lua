-- Answers many requests in one call: each element of ARGV is one, and takes its keys from KEYS in order. Values are read at the
-- beginning, all at once, and written at the end: whatever goes wrong between changes nothing.

local keys, args, call = KEYS, ARGV, redis.call

-- What is stored, as it will be when all is written; and until when it matters, or 0 if its time to live stays as it is.
local values, tills = {}, {}
-- Keys that held something else than ours, if there are any. It counts as nothing and is overwritten by the next change.
local foreign
-- The answers, and how many keys they took.
local out, taken = {}, 0
-- Makes the rest; answers any request; answers all again, after one of them failed.
local make_rest, answer_any, answer_one_by_one
-- Writes what logs keep under keys of their own, if there are any.
local write_middles

local function fetch(wanted)
  local count, missing = #wanted, nil
  for from = 1, count, 1000 do
    local to = from + 999 < count and from + 999 or count
    local found = call("MGET", spread(wanted, from, to))
    for i = from, to do
      local value, key = found[i - from + 1], wanted[i]
      values[key] = value
      -- Middles of logs are no Strings.
      if not value and byte(key, 10) ~= 43 then
        missing = missing or {}
        missing[#missing + 1] = key
      end
    end
  end
  if not missing then return end
  -- What is of another type is not found, yet is there.
  for from = 1, #missing, 1000 do
    local to = from + 999 < #missing and from + 999 or #missing
    if call("EXISTS", spread(missing, from, to)) > 0 then
      foreign = foreign or {}
      for i = from, to do
        if call("EXISTS", missing[i]) > 0 then foreign[missing[i]] = true end
      end
    end
  end
end

-- Tries to answer a spend at once: what `quick` says, with the state that it began from. Nothing is stored yet.
local function attempt(key, kind, arg, at)
  local value = values[key]
  local fresh, word, previous = 0, 0, 0
  if value then
    if #value == 8 then
      fresh = unpack("<d", value)
    elseif #value == 16 then
      fresh, word = unpack("<dd", value)
    elseif #value == 17 and byte(value) == 2 then
      fresh, word, previous = unpack("<dI4I4", value, 2)
    else
      return
    end
    if not (fresh % 1 == 0 and fresh >= 0 and fresh <= MAX and word % 1 == 0 and word >= 0 and word <= MAX) then return end
    if fresh <= now then word, previous = 0, 0 end
  elseif foreign and foreign[key] then
    return
  end
  return fresh, quick(now, fresh, word, previous, kind, arg, at)
end

-- Stores a cell instead of what was fresh at `before`.
local function keep(key, before, fresh, word, previous)
  local value, old = nil, values[key]
  if previous > 0 then
    value = pack("<BdI4I4", 2, fresh, word, previous)
  elseif word > 0 then
    value = pack("<dd", fresh, word)
  else
    value = pack("<d", fresh)
  end
  local till = fresh
  if old and before - before % 1000 == fresh - fresh % 1000 and #old == #value and (tills[key] or 0) == 0 then
    till = 0
  end
  values[key], tills[key] = value, till
end

-- Tries to answer several spends that pass together; says nothing unless all fit.
local function attempt_together(count, arg, at)
  local found, text = {}, pack("<Bd", 0, now)
  for i = 1, count do
    local kind, soft = byte(arg, at, at + 1)
    local one = { attempt(keys[taken + i], kind, arg, at + 2) }
    if not one[2] or soft > 0 then return end
    found[i], at = one, one[9]
  end
  for i = 1, count do
    local before, _, left, reset, wait, fresh, word, previous = spread(found[i], 1, 8)
    taken = taken + 1
    keep(keys[taken], before, fresh, word, previous)
    text = text .. (wait > 0 and pack("<Bddd", 9, left, reset, wait) or pack("<Bdd", 1, left, reset))
  end
  return text
end

-- Answers one request: here if it is one of the commonest, and else in the rest.
local function answer(arg)
  local op, intent, kind, soft = byte(arg, 1, 4)
  if op == 79 and intent == SPEND then
    local key = keys[taken + 1]
    if GIVEN_TIME then now = unpack("<d", arg, #arg - 15) end
    local before, fits, left, reset, wait, fresh, word, previous = attempt(key, kind, arg, 5)
    if fits then
      taken = taken + 1
      keep(key, before, fresh, word, previous)
      if wait > 0 then return pack("<BdBddd", 0, now, 9, left, reset, wait) end
      return pack("<Bddd", 3, now, left, reset)
    elseif fits == false and soft == 0 then
      taken = taken + 1
      return pack("<BdBddd", 0, now, 4, left, reset, wait)
    end
  elseif op == 65 and intent == SPEND then
    local count, at = unpack("<Hd", arg, 3)
    if GIVEN_TIME then now = at end
    local text = attempt_together(count, arg, 21)
    if text then return text end
  end
  if not answer_any then make_rest() end
  return answer_any(arg)
end

local function answer_all()
  for i = 1, #args do out[i] = answer(args[i]) end
end

-- The first millisecond in which a state certainly does not matter.
local function ends_at(till)
  return string.format("%d", till / 1000 + 1)
end

local function decide()
  fetch(keys)
  if not GIVEN_TIME then
    local time = call("TIME")
    now = time[1] * 1000000 + time[2]
  end
  if not pcall(answer_all) then
    make_rest()
    answer_one_by_one()
  end
  for key, till in next, tills do
    local value = values[key]
    if not value then
      call("DEL", key)
    elseif till == 0 then
      call("SETRANGE", key, "0", value)
    elseif GIVEN_TIME then
      call("SET", key, value, "PX", "3600000")
    else
      call("SET", key, value, "PXAT", ends_at(till))
    end
  end
  if write_middles then write_middles() end
  return out
end

make_rest = function()
