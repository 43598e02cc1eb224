-- Sliding window log: sliding_log.rs. A mark is an instant and how much was counted then, 16 bytes; they are read where they
-- are, since there may be many.

local function sliding_log()
  local limit, window, records, most
  -- Where the first mark in the window begins, where the last one does, and how many units are in the window.
  local first, last, count
  -- What is to be done to the marks: at which instant how many are added ("a"), added to the newest ("m") or given back ("r").
  local edit, edit_at, edit_count, forgotten

  local function read(arg, at)
    cost, limit, window, records, most, at = unpack("<dddBd", arg, at)
    return at
  end

  local function load()
    first, last, count, edit, forgotten = 1, #marks - 15, word, nil, 0
    while first <= last do
      local at, note = unpack("<dd", marks, first)
      if capped(at + window) > now then break end
      first, count = first + 16, less(count, note)
    end
  end

  local function left()
    return less(limit, count)
  end

  local function fits(units)
    return count + units <= limit
  end

  local function newest()
    if edit == "a" or edit == "m" then return edit_at end
    for from = last, 1, -16 do
      local at, note = unpack("<dd", marks, from)
      if not (edit == "r" and at == edit_at and note <= edit_count) then return at end
    end
    return now
  end

  local function wait(units)
    if units > limit then return nil end
    local still = less(count + units, limit) + forgotten
    for from = first, last, 16 do
      local at, note = unpack("<dd", marks, from)
      still = less(still, note)
      if still == 0 then return less(capped(at + window), now) end
    end
    return less(capped(newest() + window), now)
  end

  local function record(units)
    edit, edit_at = "a", now
    if last >= 1 then
      local at = unpack("<d", marks, last)
      if at > now then edit_at = at end
    end
    if records > 0 then
      edit_count = units < most and units or most
      forgotten = less(count + edit_count, most)
      count = count + units
      if count > most then count = most end
    else
      edit_count = capped(units)
      count = capped(count + units)
      local slots = most < 1 and 1 or most
      if (last - first) / 16 + 1 >= slots then edit = "m" end
    end
  end

  -- Where the mark of an instant begins.
  local function find_mark(instant)
    local low, high = (first - 1) / 16, (last - 1) / 16
    while low <= high do
      local middle = math.floor((low + high) / 2)
      local at, note = unpack("<dd", marks, middle * 16 + 1)
      if at == instant then return middle * 16 + 1, note end
      if at < instant then low = middle + 1 else high = middle - 1 end
    end
    return nil, 0
  end

  local function refund(units)
    local _, counted = find_mark(charged_at)
    edit, edit_at, edit_count = "r", charged_at, units < counted and units or counted
    count = less(count, edit_count)
  end

  local function deny(units)
    if records == 0 then return false end
    record(units)
    return true
  end

  local function reset_after()
    if count == 0 then return 0 end
    return less(capped(newest() + window), now)
  end

  -- The marks without the oldest `excess` units.
  local function trimmed(kept, excess)
    local from = 1
    while from <= #kept do
      local at, note = unpack("<dd", kept, from)
      if note > excess then return pack("<dd", at, note - excess) .. sub(kept, from + 16) end
      excess, from = excess - note, from + 16
    end
    return ""
  end

  local function save()
    new_fresh, new_word = 0, 0
    if count > 0 then new_fresh, new_word = capped(newest() + window), count end
    if edit == "r" then
      local from, note = find_mark(edit_at)
      new_marks = sub(marks, first)
      if from then
        local kept = note > edit_count and pack("<dd", edit_at, note - edit_count) or ""
        new_marks = sub(marks, first, from - 1) .. kept .. sub(marks, from + 16)
      end
      return
    end
    local at, note = nil, 0
    if first <= last then at, note = unpack("<dd", marks, last) end
    if at and (edit == "m" or at == edit_at) then
      new_marks = sub(marks, first, last - 1) .. pack("<dd", edit_at, capped(note + edit_count))
    else
      new_marks = sub(marks, first) .. pack("<dd", edit_at, edit_count)
    end
    if forgotten > 0 then new_marks = trimmed(new_marks, forgotten) end
  end

  return {
    read = read, load = load, remaining = left, fits = fits, wait = wait, refund = refund, deny = deny,
    reset_after = reset_after, save = save, charge = record,
  }
end
