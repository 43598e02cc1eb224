-- Answers many requests in one call: each element of ARGV is one, and takes its keys from KEYS in order. Values are read at the
-- beginning, all at once, and written at the end: whatever goes wrong between changes nothing.

local keys, args, call = KEYS, ARGV, redis.call

-- What is stored, as it will be when all is written, and until when it matters.
local values, tills = {}, {}
-- Keys that held something else than ours. It counts as nothing and is overwritten by the next change.
local foreign = {}
-- What reservations hold of the counter that is being decided: id, due, cost, when it could proceed, lease; 40 bytes each.
local holds = ""
-- The answers, and how many keys they took.
local out, taken = {}, 0
-- How answers begin that say no more than what is left and for how long: with the time.
local begin
-- Makes the rest; answers any request; answers all again, after one of them failed.
local make_rest, answer_any, answer_one_by_one

local function fetch(wanted)
  local count, missing = #wanted, nil
  for from = 1, count, 1000 do
    local to = from + 999 < count and from + 999 or count
    local found = call("MGET", spread(wanted, from, to))
    for i = from, to do
      local value, key = found[i - from + 1], wanted[i]
      values[key] = value
      if not value then
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
      for i = from, to do
        if call("EXISTS", missing[i]) > 0 then foreign[missing[i]] = true end
      end
    end
  end
end

-- Takes a value apart. What is not ours is a fresh state.
local function open(key)
  local value = values[key]
  if not value then
    fresh, word, previous, over, marks, holds = 0, 0, 0, 0, "", ""
    return
  end
  local layout, count
  previous, over, marks, holds = 0, 0, "", ""
  if #value == 16 then
    layout, fresh, word = 1, unpack("<dd", value)
  elseif #value == 8 then
    layout, fresh, word = 1, (unpack("<d", value)), 0
  elseif #value == 17 then
    layout, fresh, word, previous = unpack("<BdI4I4", value)
    if layout ~= 2 then layout = 0 end
  elseif #value >= 37 then
    layout, fresh, word, previous, over, count = unpack("<BddddI4", value)
    holds, marks = sub(value, 38, 37 + count * 40), sub(value, 38 + count * 40)
    if layout ~= 3 or #holds ~= count * 40 or #marks % 16 > 0 or previous % 1 ~= 0 or over % 1 ~= 0 then layout = 0 end
  end
  if layout and layout > 0 and fresh % 1 == 0 and fresh >= 0 and fresh <= MAX and word % 1 == 0 and word >= 0
    and word <= MAX then
    return
  end
  fresh, word, previous, over, marks, holds = 0, 0, 0, 0, "", ""
  foreign[key] = true
end

-- Answers one request: here if it is one of the commonest, and else in the rest.
local function answer(arg)
  local op, intent, kind = byte(arg, 1, 3)
  if op == 79 and intent == SPEND then
    local key = keys[taken + 1]
    if GIVEN_TIME then
      now = unpack("<d", arg, #arg - 15)
      begin = pack("<Bd", 3, now)
    end
    open(key)
    if holds == "" and quick(kind, arg, 5) and not foreign[key] then
      taken = taken + 1
      tills[key] = new_fresh
      if new_previous > 0 then
        values[key] = pack("<BdI4I4", 2, new_fresh, new_word, new_previous)
      elseif new_word > 0 then
        values[key] = pack("<dd", new_fresh, new_word)
      else
        values[key] = pack("<d", new_fresh)
      end
      return begin .. pack("<dd", remaining, reset)
    end
  end
  if not answer_any then make_rest() end
  return answer_any(arg)
end

local function answer_all()
  for i = 1, #args do out[i] = answer(args[i]) end
end

local function decide()
  fetch(keys)
  if not GIVEN_TIME then
    local time = call("TIME")
    now = time[1] * 1000000 + time[2]
    begin = pack("<Bd", 3, now)
  end
  if not pcall(answer_all) then
    make_rest()
    answer_one_by_one()
  end
  for key, till in next, tills do
    local value = values[key]
    if not value then
      call("DEL", key)
    elseif GIVEN_TIME then
      call("SET", key, value, "PX", "3600000")
    else
      -- The first millisecond in which it certainly does not matter.
      call("SET", key, value, "PXAT", string.format("%d", till / 1000 + 1))
    end
  end
  return out
end

make_rest = function()
