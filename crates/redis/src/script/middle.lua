-- The blocks of marks between the oldest and the newest of a long log: elements of a List, under a key of its own that lives as long as
-- the counter's. As with values, nothing is written before all is decided.

-- Of each counter that has blocks, or had some: which there are. Their numbers are those that they were found with. Those from `from` to before
-- `kept` stay where they are, and those from there to before `to` come after them. `texts` has what was read, changed or added.
local middles = {}
-- The counter whose state was opened last.
local opened

local function middle_of(key, count)
  local name = sub(key, 1, 9) .. "+" .. sub(key, 11)
  local m = { name = name, had = count, from = 0, kept = count, to = count, texts = {}, changed = {} }
  middles[key] = m
  return m
end

read_block = function(number, at)
  local m = middles[opened]
  number = m.from + number
  local text = m.texts[number]
  if not text then
    text = call("LINDEX", m.name, number)
    if not text or #text < 16 or #text % 16 > 0 or unpack("<d", text, #text - 15) ~= at then
      error("a block of a log is not there")
    end
    m.texts[number] = text
  end
  return text
end

-- What the new state makes of the blocks of a counter.
local function edit_middle(key)
  local m, edit = middles[key], new_edit
  new_edit = nil
  if new_middle == "" then
    if m then m.from = m.to end
    return
  end
  if not edit then return end
  m = m or middle_of(key, 0)
  local base = m.from
  local from, to = base + edit.from, base + edit.to
  local kept = m.kept < to and m.kept or to
  if edit.added and from < kept and not m.is_whole then
    if call("LLEN", m.name) ~= m.had then error("blocks of a log are not there") end
    m.is_whole = true
  end
  if edit.block then
    m.texts[base + edit.changed], m.changed[base + edit.changed] = edit.block, true
  end
  m.from, m.kept, m.to = from, kept, to
  if edit.added then
    for _, block in ipairs(edit.added) do
      m.texts[m.to], m.to = block, m.to + 1
    end
  end
end

local function write_middle(m, till)
  local from = m.kept
  if m.from >= m.kept then
    -- Whatever was there.
    call("DEL", m.name)
    from = m.from
  else
    if m.from > 0 or m.kept < m.had then call("LTRIM", m.name, m.from, m.kept - 1) end
    for number in next, m.changed do
      if number >= m.from and number < m.kept then call("LSET", m.name, number - m.from, m.texts[number]) end
    end
  end
  for number = from, m.to - 1 do call("RPUSH", m.name, m.texts[number]) end
  if GIVEN_TIME then
    call("PEXPIRE", m.name, "3600000")
  else
    call("PEXPIREAT", m.name, ends_at(till))
  end
end

write_middles = function()
  for key, m in next, middles do
    local till = tills[key]
    if till and values[key] and m.to > m.from then
      write_middle(m, till)
    elseif till and m.had > 0 then
      call("DEL", m.name)
    end
  end
end

