-- Answers many requests in one call: each element of ARGV is one, and takes its keys from KEYS in order. Values are read at the
-- beginning, all at once, and written at the end: whatever goes wrong between changes nothing.

local keys, args, call = KEYS, ARGV, redis.call

-- What is stored, as it will be when all is written; and until when it matters, or 0 if its time to live stays as it is.
local values, tills = {}, {}
-- Keys that held something else than ours, if there are any. It counts as nothing and is overwritten by the next change.
local foreign
-- Why Redis does not let us read, if it does not: then nothing is written.
local refused
-- The answers, and how many keys they took.
local out, taken = {}, 0
-- Makes the rest; answers any request; answers all again, after one of them failed.
local make_rest, answer_any, answer_one_by_one
-- Counters that keep something beside their value, under a key that is to live as long; and what writes that, if there is anything to write.
local has_middle, write_middles

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

-- The same as `attempt` for logs, of which it needs the first marks and the last one; instead of a new cell it says when the new value is
-- fresh, and that value. Says nothing where blocks of marks are needed or made.
local function attempt_log(value, arg, at)
  if now > MODERATE then return end
  local units, limit, window, records, _
  units, limit, window, records, _, at = unpack("<dddBd", arg, at)
  local till = now + window
  if units == 0 or units > limit or till > MAX then return end
  if not value then
    return 0, true, limit - units, window, 0, till, pack("<BddddI4dd", 3, till, units, 0, 0, 0, now, units), nil, at
  end
  local size = #value
  if size < 53 or size % 16 ~= 5 then return end
  local layout, fresh, count, over, last, between, holds = byte(value), 0, 0, 0, size, 0, 0
  if layout == 3 then
    _, fresh, count, _, over, holds = unpack("<BddddI4", value)
  elseif layout == 5 then
    _, fresh, count, over, last, between, holds = unpack("<BdddI4I4I4", value)
    last = last + 37
  end
  if not (fresh > now and fresh <= MAX and count % 1 == 0 and count <= MAX and over == 0 and holds == 0 and last % 16 == 5
    and last <= size) then
    return
  end
  -- The first mark in the window.
  local from, instant, note = 38, 0, 0
  while true do
    if from > last then return end
    instant, note = unpack("<dd", value, from)
    if instant + window > now then break end
    from, count = from + 16, count - note
  end
  local newest, more = unpack("<dd", value, size - 15)
  if newest > now or count < 0 then return end
  if count + units > limit then
    if records > 0 or count > limit then return end
    local still = count + units - limit - note
    while still > 0 do
      from = from + 16
      if from > last then return end
      instant, note = unpack("<dd", value, from)
      still = still - note
    end
    return fresh, false, limit - count, newest + window - now, instant + window - now, 0, 0, nil, at
  end
  -- What is counted in the same microsecond shares a mark.
  local cut = size
  if newest == now then cut, more = size - 16, more + units else more = units end
  if layout == 3 and cut - from + 17 > WHOLE_BYTES or layout == 5 and cut + 16 - last > BLOCK_BYTES + LAST_BYTES then return end
  count = count + units
  local head
  if layout == 3 then
    head = pack("<BddddI4", 3, till, count, 0, 0, 0)
  else
    head = pack("<BdddI4I4I4", 5, till, count, 0, last - from + 1, between, 0)
  end
  return fresh, true, limit - count, window, 0, till, head .. value:sub(from, cut) .. pack("<dd", now, more), nil, at
end

-- Tries to answer a spend at once: what `quick` says, with the state that it began from. Nothing is stored yet.
local function attempt(key, kind, arg, at)
  local value = values[key]
  if kind == 5 then
    if foreign and foreign[key] then return end
    return attempt_log(value, arg, at)
  end
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

-- Stores a cell instead of what was fresh at `before`; or a log's value, which comes in the place of a word.
local function keep(key, before, fresh, word, previous)
  if not previous then
    values[key], tills[key] = word, fresh
    if byte(word) == 5 then
      has_middle = has_middle or {}
      has_middle[key] = true
    end
    return
  end
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

-- After the keys of a request: those of what its counters keep beside their values, named so that all keys of a call are.
local function skip_middles()
  while byte(keys[taken + 1] or "", 10) == 43 do taken = taken + 1 end
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
      if kind == 5 then skip_middles() end
      keep(key, before, fresh, word, previous)
      if wait > 0 then return pack("<BdBddd", 0, now, 9, left, reset, wait) end
      return pack("<Bddd", 3, now, left, reset)
    elseif fits == false and soft == 0 then
      taken = taken + 1
      if kind == 5 then skip_middles() end
      return pack("<BdBddd", 0, now, 4, left, reset, wait)
    end
  elseif op == 65 and intent == SPEND then
    local count, at = unpack("<Hd", arg, 3)
    if GIVEN_TIME then now = at end
    local text = attempt_together(count, arg, 21)
    if text then
      skip_middles()
      return text
    end
  end
  if not answer_any then make_rest() end
  return answer_any(arg)
end

local function answer_all()
  for i = 1, #args do out[i] = answer(args[i]) end
end

local function middle_name(key)
  return string.sub(key, 1, 9) .. "+" .. string.sub(key, 11)
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
  if not pcall(answer_all) and not refused then
    make_rest()
    answer_one_by_one()
  end
  if refused then return refused end
  if write_middles then write_middles() end
  for key, till in next, tills do
    local value = values[key]
    if not value then
      call("DEL", key)
    elseif till == 0 then
      call("SETRANGE", key, "0", value)
    elseif GIVEN_TIME then
      call("SET", key, value, "PX", "3600000")
      if has_middle and has_middle[key] then call("PEXPIRE", middle_name(key), "3600000") end
    else
      local ends = ends_at(till)
      call("SET", key, value, "PXAT", ends)
      if has_middle and has_middle[key] then call("PEXPIREAT", middle_name(key), ends) end
    end
  end
  return out
end

make_rest = function()
