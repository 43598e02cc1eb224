-- All requests, and reservations; what the commonest of them do not need.

local sort, join = table.sort, table.concat

foreign = foreign or {}
-- Made when they are first needed.
local machines = {}
-- How to settle what was never wholly reserved: all is given back, and nobody asks again.
local WITHDRAW = 3
-- What reservations hold of the counter that is being decided: id, due, cost, when it could proceed, lease; 40 bytes each.
local holds = ""

-- Takes a value apart. What is not ours is a fresh state.
local function open(key)
  local value = values[key]
  opened = key
  if not value then
    fresh, word, previous, over, marks, between, holds = 0, 0, 0, 0, "", 0, ""
    return
  end
  local layout, count
  previous, over, marks, ahead, between, holds = 0, 0, "", 0, 0, ""
  if #value == 16 then
    layout, fresh, word = 1, unpack("<dd", value)
  elseif #value == 8 then
    layout, fresh, word = 1, (unpack("<d", value)), 0
  elseif #value == 17 then
    layout, fresh, word, previous = unpack("<BdI4I4", value)
    if layout ~= 2 then layout = 0 end
  elseif #value >= 37 then
    layout = byte(value)
    if layout == 5 then
      layout, fresh, word, over, ahead, between, count = unpack("<BdddI4I4I4", value)
      if between == 0 or ahead % 16 > 0 then layout = 0 end
    elseif layout == 3 then
      layout, fresh, word, previous, over, count = unpack("<BddddI4", value)
    else
      layout, count = 0, 0
    end
    holds, marks = sub(value, 38, 37 + count * 40), sub(value, 38 + count * 40)
    if #holds ~= count * 40 or #marks % 16 > 0 or previous % 1 ~= 0 or over % 1 ~= 0 then layout = 0 end
  end
  if layout and layout > 0 and fresh % 1 == 0 and fresh >= 0 and fresh <= MAX and word % 1 == 0 and word >= 0
    and word <= MAX then
    if between > 0 and not middles[key] then middle_of(key) end
    return
  end
  fresh, word, previous, over, marks, between, holds = 0, 0, 0, 0, "", 0, ""
  foreign[key] = true
end

local function put(key, value, till)
  values[key], tills[key] = value, till
  if foreign[key] then foreign[key] = nil end
end

-- Puts the new state together.
local function close(key)
  if new_fresh == 0 then new_over, new_marks, new_between = 0, "", 0 end
  edit_middle(key)
  if holds == "" and new_marks == "" and new_over == 0 then
    if new_fresh == 0 then return put(key, false, 0) end
    keep(key, -1, new_fresh, new_word, new_previous)
    if foreign[key] then foreign[key] = nil end
    return
  end
  local till = new_fresh
  for from = 1, #holds, 40 do
    local due = unpack("<d", holds, from + 8)
    if due > till then till = due end
  end
  if till == 0 then return put(key, false, 0) end
  local head
  if new_between > 0 then
    head = pack("<BdddI4I4I4", 5, new_fresh, new_word, new_over, new_ahead, new_between, #holds / 40)
  else
    head = pack("<BddddI4", 3, new_fresh, new_word, new_previous, new_over, #holds / 40)
  end
  put(key, head .. holds .. new_marks, till)
end

-- Set below.
local expire
-- Where one charge of an argument ends.
local finish = 0

-- Takes the step of the charge that begins at `at`, on the counter `key`, without any effect yet.
local function step(key, arg, at, intent)
  local kind, flags = byte(arg, at, at + 1)
  local m = machines[kind]
  if not m then
    m = build(kind)
    machines[kind] = m
  end
  local hard, raised, lasting = at + 2, nil, 0
  at = m.read(arg, hard)
  if flags > 0 then
    raised = at
    at = m.read(arg, at)
    lasting, at = unpack("<d", arg, at)
    m.read(arg, hard)
  end
  finish = at
  open(key)
  if holds ~= "" then expire(m, key, arg, hard) end
  run(m, intent, arg, hard, raised, lasting)
end

-- The answer in bytes: what it has, and then the numbers that are there.
local function outcome(lost)
  local flags = lost and 32 or 0
  if allowed and delay == 0 and excess == 0 then
    if overage then flags = flags + 2 end
    return pack("<Bdd", flags + 1, remaining, reset)
  end
  if allowed then flags = flags + 1 end
  if overage then flags = flags + 2 end
  if not allowed and retry then flags = flags + 4 end
  if delay > 0 then flags = flags + 8 end
  if excess > 0 then flags = flags + 16 end
  local text = pack("<Bdd", flags, remaining, reset)
  if not allowed and retry then text = text .. pack("<d", retry) end
  if delay > 0 then text = text .. pack("<d", delay) end
  if excess > 0 then text = text .. pack("<d", excess) end
  return text
end

-- The state as it is becomes the new one.
local function adopt_old()
  new_fresh, new_word, new_previous, new_over, new_marks = fresh, word, previous, over, marks
  new_ahead, new_between, new_edit = ahead, between, nil
end

local function adopt_new()
  edit_middle(opened)
  fresh, word, previous, over, marks = new_fresh, new_word, new_previous, new_over, new_marks
  ahead, between = new_ahead, new_between
end

-- Gives back what was reserved and not settled in time. Whoever could proceed last gives back first, so that all places of a
-- queue are free again.
expire = function(m, key, arg, hard)
  local due, kept = {}, {}
  for from = 1, #holds, 40 do
    local _, till, units, at, owner = unpack("<c8dddc8", holds, from)
    if till <= now then
      due[#due + 1] = { from = from, units = units, at = at, owner = owner }
    else
      kept[#kept + 1] = sub(holds, from, from + 40 - 1)
    end
  end
  if #due == 0 then return end
  sort(due, function(a, b) return a.at > b.at or (a.at == b.at and a.from < b.from) end)
  local asked, asked_lease, asked_charged_at = cost, lease, charged_at
  for i = 1, #due do
    local held = due[i]
    cost, lease, charged_at = held.units, held.owner, held.at
    run(m, REFUND, arg, hard)
    if changed then adopt_new() end
  end
  cost, lease, charged_at = asked, asked_lease, asked_charged_at
  holds = join(kept)
  adopt_old()
  close(key)
end

local function apply_one(key, arg, at, intent)
  step(key, arg, at, intent)
  local lost = foreign[key]
  if changed then close(key) end
  return outcome(lost)
end

-- Several charges as one. Returns the answer and, if all was admitted, what to remember of each for a reservation.
local function apply_together(first, count, arg, at, intent, reserved)
  local texts, starts, ends, changes, denied = {}, {}, {}, {}, false
  for i = 1, count do
    local key = keys[first + i]
    starts[i] = at
    step(key, arg, at, intent)
    texts[i] = outcome(foreign[key])
    if not allowed then denied = true end
    local has_changed = changed
    if not changed then adopt_old() end
    changes[i] = {
      allowed, has_changed, new_fresh, new_word, new_previous, new_over, new_marks, holds, delay, cost, lease, new_ahead,
      new_between, new_edit,
    }
    at = finish
    ends[i] = at
    if reserved then at = at + 2 + 10 * unpack("<H", arg, at) end
  end
  local refused = denied and intent == SPEND
  for i = 1, count do
    local key, c = keys[first + i], changes[i]
    if refused and c[1] then
      -- Not charged after all: what is reported is what is.
      step(key, arg, starts[i], PEEK)
      texts[i] = outcome(foreign[key])
    else
      if reserved and not refused then
        local proceeds_at = capped(now + c[9])
        c[2], c[8] = true, c[8] .. pack("<c8dddc8", reserved.id, reserved.due, c[10], proceeds_at, c[11])
        local listed = ends[i] + 2 + 10 * unpack("<H", arg, ends[i])
        reserved[i] = pack("<I4I4d", #key, listed - starts[i], proceeds_at) .. key .. sub(arg, starts[i], listed - 1)
      end
      if c[2] then
        new_fresh, new_word, new_previous, new_over, new_marks, holds = c[3], c[4], c[5], c[6], c[7], c[8]
        new_ahead, new_between, new_edit = c[12], c[13], c[14]
        close(key)
      end
    end
  end
  return join(texts), not refused
end

-- Spends, and remembers what and for how long under the key after those of the charges.
local function reserve(first, count, arg, at, hold)
  local id, elsewhere
  id, elsewhere, at = unpack("<c8H", arg, at)
  local others = sub(arg, at, at + 2 * elsewhere - 1)
  at = at + 2 * elsewhere
  local reserved = { id = id, due = capped(now + hold) }
  local text, held = apply_together(first, count, arg, at, SPEND, reserved)
  if held then
    local record = pack("<BdI4", 4, reserved.due, count) .. join(reserved) .. others
    put(keys[first + count + 1], record, reserved.due)
  end
  return text
end

-- What is kept of a reserved charge on one counter: Commit, the actual costs that were sent (as two halves), or nothing.
local function kept_of(arg, at, mode, record, listed)
  local entries
  entries, listed = unpack("<H", record, listed)
  local high, low, actual = 0, 0, unpack("<H", arg, 3)
  for _ = 1, entries do
    local index, units
    index, units, listed = unpack("<Hd", record, listed)
    if mode == 1 and index < actual then
      local q, r = unpack("<dd", arg, at + 16 * index)
      high, low = high + q, low + r
    elseif mode < 2 then
      low = low + units
    end
  end
  return high, low, listed
end

-- Ends a reservation; says whether there was one. Of one that holds something elsewhere as well, how it was settled stays until it is due:
-- whoever was cut short between here and there can ask again, and is told how it has to be settled there.
local function settle(key, arg, at, mode)
  local id
  id, at = unpack("<c8", arg, at)
  local record = values[key]
  local layout = record and byte(record, 1)
  if layout == 6 and #record > 9 and unpack("<d", record, 2) > now then return "\2" .. sub(record, 10) end
  if layout ~= 4 then return "\1" end
  local _, due, count, from = unpack("<BdI4", record)
  put(key, false, 0)
  if due <= now then return "\1" end
  for _ = 1, count do
    local size, length, proceeds_at
    size, length, proceeds_at, from = unpack("<I4I4d", record, from)
    local counter = sub(record, from, from + size - 1)
    from = from + size
    if values[counter] == nil then fetch({ counter }) end
    -- A peek reads the parameters, and gives back what others have not settled.
    local reached = pcall(step, counter, record, from, PEEK)
    local high, low = kept_of(arg, at, mode, record, finish)
    open(counter)
    local mine = string.find(holds, id, 1, true)
    while mine and mine % 40 ~= 1 do mine = string.find(holds, id, mine + 1, true) end
    if mine then holds = sub(holds, 1, mine - 1) .. sub(holds, mine + 40) end
    local m, params = machines[byte(record, from)], from + 2
    m.read(record, params)
    local reserved = cost
    -- The halves are multiples of 2^26 and below it: what is missing is exact if it can be.
    local missing = (high * 67108864 - reserved) + low
    charged_at = proceeds_at
    cost = missing < 0 and -missing or (missing > MAX and MAX + 1 or missing)
    -- Windows that were not sent when it was reserved are later ones: nothing is given back to those.
    if reached and pcall(run, m, missing < 0 and REFUND or FORCE, record, params) and changed then
      adopt_new()
    end
    adopt_old()
    close(counter)
    from = from + length
  end
  -- After the counters: where else it holds something.
  local elsewhere = sub(record, from)
  if elsewhere ~= "" and mode < WITHDRAW then
    put(key, pack("<BdB", 6, due, mode) .. sub(arg, 3, 4) .. sub(arg, at) .. elsewhere, due)
  end
  return "\0" .. elsewhere
end

-- Whether what was thrown is an instant that the windows that were sent do not reach.
local function beyond(thrown)
  return type(thrown) == "table" and thrown.at
end

-- The answer to a spend, if it is one of the commonest.
local function attempt_one(key, arg, at)
  local kind, soft = byte(arg, at, at + 1)
  local before, fits, left, reset, wait, since, units, earlier = attempt(key, kind, arg, at + 2)
  if fits then
    keep(key, before, since, units, earlier)
    return wait > 0 and pack("<Bddd", 9, left, reset, wait) or pack("<Bdd", 1, left, reset)
  elseif fits == false and soft == 0 then
    return pack("<Bddd", 4, left, reset, wait)
  end
end

-- Each charge on its own. What is wrong with one concerns no other.
local function apply_each(first, count, arg, from, intent)
  local texts = {}
  for k = 1, count do
    local size, key = 0, keys[first + k]
    size, from = unpack("<I4", arg, from)
    local done, text = true, intent == SPEND and attempt_one(key, arg, from)
    if not text then done, text = pcall(apply_one, key, arg, from, intent) end
    if not done and not beyond(text) then
      values[key], middles[key], foreign[key], machines = false, nil, true, {}
      done, text = pcall(apply_one, key, arg, from, intent)
    end
    if not done then text = beyond(text) and pack("<Bd", 64, text.at) or "\128" end
    texts[k], from = text, from + size
  end
  return join(texts)
end

local function answer_rare(arg, op)
  local first = taken
  local _, intent, count, at, extra, from = unpack("<BBHdd", arg)
  if GIVEN_TIME then now = at end
  charged_at = extra
  taken = first + count
  if op == 82 then taken = taken + 1 elseif op == 83 then taken = first + 1 end
  skip_middles()
  if op == 65 then return (apply_together(first, count, arg, from, intent)) end
  if op == 69 then return apply_each(first, count, arg, from, intent) end
  if op == 82 then return reserve(first, count, arg, from, extra) end
  return settle(keys[first + 1], arg, from, intent)
end

answer_any = function(arg)
  local op, intent = byte(arg, 1, 2)
  if op ~= 79 then
    local text = answer_rare(arg, op)
    return pack("<Bd", 0, now) .. text
  end
  local at
  at, charged_at = unpack("<dd", arg, #arg - 15)
  if GIVEN_TIME then now = at end
  taken = taken + 1
  local key = keys[taken]
  skip_middles()
  local text = apply_one(key, arg, 3, intent)
  return pack("<Bd", 0, now) .. text
end

local function copied(from, depth)
  local copy = {}
  for key, value in next, from do
    if depth > 0 and type(value) == "table" then value = copied(value, depth - 1) end
    copy[key] = value
  end
  return copy
end

-- From the beginning, after something went wrong: nothing was written yet. What is wrong with one request concerns no other, and a state
-- that cannot be read counts as none, but no other state of the same request does: it is the one that was opened last.
answer_one_by_one = function()
  values, tills, middles, foreign, machines, taken = {}, {}, {}, {}, {}, 0
  fetch(keys)
  for i = 1, #args do
    local first, lost, done, text, again = taken, {}, false, nil, false
    local had, till, was_foreign, had_middles = copied(values, 0), copied(tills, 0), copied(foreign, 0), copied(middles, 2)
    repeat
      opened = nil
      done, text = pcall(answer, args[i])
      again = not done and not beyond(text) and opened and not lost[opened]
      if not done then
        -- Nothing of what was begun stays.
        if again then lost[opened], taken = true, first end
        values, tills, foreign, middles = copied(had, 0), copied(till, 0), copied(was_foreign, 0), copied(had_middles, 2)
        machines = {}
        for key in next, lost do values[key], foreign[key], middles[key] = false, true, nil end
      end
    until not again
    if not done then
      text = beyond(text) and pack("<Bdd", 1, now, text.at) or pack("<Bd", 2, now) .. tostring(text)
    end
    out[i] = text
  end
end
end

return decide()
