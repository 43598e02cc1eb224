-- What a long log keeps beside its value: a List of the index of its blocks and then the blocks themselves, under a key of its own that
-- lives as long as the value. As with values, nothing is written before all is decided.

-- Of each counter that has blocks, or had some: which there are. Their numbers are those that they were found with. Those from `from` to before
-- `kept` stay where they are, and those from there to before `to` come after them. `texts` has what was read, changed or added.
local middles = {}
-- The counter whose state was opened last.
local opened

local function middle_of(key)
  local m = { name = middle_name(key), from = 0, kept = 0, to = 0, texts = {}, changed = {} }
  middles[key] = m
  return m
end

local function not_there()
  error("blocks of a log are not there")
end

-- What a command that only reads finds. Something of another type is not ours, and counts as not there; whatever else keeps us from reading, such
-- as a right that is missing, is no fault of the state.
local function look(...)
  local found = redis.pcall(...)
  if type(found) == "table" and found.err then
    if not string.find(found.err, "WRONGTYPE", 1, true) then refused = found end
    not_there()
  end
  return found
end

read_index = function()
  local m = middles[opened]
  if not m.index then
    m.index = look("LINDEX", m.name, "0")
    if not m.index or #m.index == 0 or #m.index % 18 > 0 then not_there() end
    m.had = #m.index / 18
    m.kept, m.to = m.had, m.had
  end
  return m.index
end

read_block = function(number, at)
  local m = middles[opened]
  number = m.from + number
  local text = m.texts[number]
  if not text then
    text = look("LINDEX", m.name, number + 1)
    if not text or #text < 16 or #text % 16 > 0 or unpack("<d", text, #text - 15) ~= at then not_there() end
    m.texts[number] = text
  end
  return text
end

-- What the new state makes of the blocks of a counter.
local function edit_middle(key)
  local m, edit = middles[key], new_edit
  new_edit = nil
  if new_between == 0 then
    if m then
      m.from, m.kept, m.to, m.index, m.texts, m.changed, m.is_changed = 0, 0, 0, "", {}, {}, true
    end
    return
  end
  if not edit then return end
  m = m or middle_of(key)
  local base = m.from
  local from, to = base + edit.from, base + edit.to
  local kept = m.kept < to and m.kept or to
  if edit.added and from < kept and not m.is_whole then
    if look("LLEN", m.name) ~= m.had + 1 then not_there() end
    m.is_whole = true
  end
  if edit.block then
    m.texts[base + edit.changed], m.changed[base + edit.changed] = edit.block, true
  end
  m.from, m.kept, m.to, m.index, m.is_changed = from, kept, to, edit.index, true
  if edit.added then
    for _, block in ipairs(edit.added) do
      m.texts[m.to], m.to = block, m.to + 1
    end
  end
end

local function write_middle(m)
  local from = m.kept
  if m.from >= m.kept then
    -- Whatever was there.
    call("DEL", m.name)
    call("RPUSH", m.name, m.index)
    from = m.from
  else
    for number in next, m.changed do
      if number >= m.from and number < m.kept then call("LSET", m.name, number + 1, m.texts[number]) end
    end
    if m.from > 0 then
      call("LTRIM", m.name, m.from + 1, m.kept)
      call("LPUSH", m.name, m.index)
    else
      if m.kept < m.had then call("LTRIM", m.name, "0", m.kept) end
      call("LSET", m.name, "0", m.index)
    end
  end
  for number = from, m.to - 1 do call("RPUSH", m.name, m.texts[number]) end
end

write_middles = function()
  has_middle = has_middle or {}
  for key, m in next, middles do
    if m.is_changed then
      if values[key] and m.to > m.from then
        write_middle(m)
      else
        call("DEL", m.name)
      end
    end
    has_middle[key] = not m.is_changed or m.to > m.from
  end
end

