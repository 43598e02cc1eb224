-- Sliding window log: sliding_log.rs. A mark is an instant and how much was counted then, 16 bytes; they are read where they
-- are, since there may be many.
--
-- Of many marks a state has the oldest and the newest. Those between are kept elsewhere, in blocks that `read_block` gets one at a
-- time. `middle` says what is needed of them otherwise: how many bytes of the marks are the oldest, how many marks are between, and
-- for each block the instant of its last mark, its units and its marks, 18 bytes. As long as there are blocks, there are marks after
-- them. A block whose marks were all given back is empty and stays until its time is over.

local function sliding_log()
  local limit, window, records, most
  -- The oldest marks, and where the first of them in the window begins; how many blocks there are, and how many of them have left it
  -- or are among the oldest now; how many marks the others have; and the newest marks, like the oldest.
  local front, first, blocks, gone, held, back, start
  -- How many units are in the window.
  local count
  -- What is to be done to the marks: at which instant how many are added ("a"), added to the newest ("m") or given back ("r").
  local edit, edit_at, edit_count, forgotten
  -- Where what is given back was counted: in these marks, or in those of a block, from this byte on, so much.
  local found, found_block, found_from, found_note

  local function read(arg, at)
    cost, limit, window, records, most, at = unpack("<dddBd", arg, at)
    return at
  end

  -- Where the first mark in the window begins.
  local function passed(text)
    local from, size = 1, #text
    while from < size do
      local at, note = unpack("<dd", text, from)
      if capped(at + window) > now then break end
      from, count = from + 16, less(count, note)
    end
    return from
  end

  local function load()
    count, edit, forgotten = word, nil, 0
    front, first, blocks, gone, held, back, start = "", 1, 0, 0, 0, marks, 1
    if middle ~= "" then
      local size
      size, held = unpack("<I4I4", middle)
      front, back, blocks = sub(marks, 1, size), sub(marks, size + 1), (#middle - 8) / 18
      first = passed(front)
      while first > #front and gone < blocks do
        local at, units, number = unpack("<ddH", middle, gone * 18 + 9)
        if capped(at + window) <= now then
          count = less(count, units)
        elseif number > 0 then
          front = read_block(gone, at)
          first = passed(front)
        end
        gone, held = gone + 1, held - number
      end
    end
    if first > #front then start = passed(back) end
  end

  local function left()
    return less(limit, count)
  end

  local function fits(units)
    return count + units <= limit
  end

  -- The instant of the last mark that is not given back.
  local function last_of(text)
    for from = #text - 15, 1, -16 do
      local at, note = unpack("<dd", text, from)
      if not (edit == "r" and at == edit_at and note <= edit_count) then return at end
    end
  end

  local function newest()
    if edit == "a" or edit == "m" then return edit_at end
    local at, number = last_of(back), blocks
    while not at and number > gone do
      number = number - 1
      local last, units = unpack("<dd", middle, number * 18 + 9)
      if units > 0 then at = last_of(read_block(number, last)) end
    end
    return at or last_of(front) or now
  end

  -- How long until the window lets go of the unit `still`, if these marks have so many; if not, how many are missing.
  local function leaves(text, from, still)
    for begin = from, #text - 15, 16 do
      local at, note = unpack("<dd", text, begin)
      still = less(still, note)
      if still == 0 then return less(capped(at + window), now) end
    end
    return nil, still
  end

  local function wait(units)
    if units > limit then return nil end
    local due, still = leaves(front, first, less(count + units, limit) + forgotten)
    local number = gone
    while not due and number < blocks do
      local at, more = unpack("<dd", middle, number * 18 + 9)
      if more < still then
        still = still - more
      elseif more > 0 then
        due, still = leaves(read_block(number, at), 1, still)
      end
      number = number + 1
    end
    if not due then due = leaves(back, start, still) end
    return due or less(capped(newest() + window), now)
  end

  local function record(units)
    edit, edit_at = "a", now
    local text = back ~= "" and back or front
    if text ~= "" then
      local at = unpack("<d", text, #text - 15)
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
      if (#front - first + #back - start + 2) / 16 + held >= slots then edit = "m" end
    end
  end

  -- Where the mark of an instant begins, and what it counts.
  local function find_mark(text, from, instant)
    local low, high = (from - 1) / 16, #text / 16 - 1
    while low <= high do
      local middle = math.floor((low + high) / 2)
      local at, note = unpack("<dd", text, middle * 16 + 1)
      if at == instant then return middle * 16 + 1, note end
      if at < instant then low = middle + 1 else high = middle - 1 end
    end
    return nil, 0
  end

  -- The block that has the mark of an instant, if there is one.
  local function find_block(instant)
    local low, high = gone, blocks
    while low < high do
      local number = math.floor((low + high) / 2)
      if unpack("<d", middle, number * 18 + 9) < instant then low = number + 1 else high = number end
    end
    if low == blocks then return end
    local at, units = unpack("<dd", middle, low * 18 + 9)
    if units > 0 then return low, read_block(low, at) end
  end

  local function refund(units)
    found, found_block = back, nil
    found_from, found_note = find_mark(back, start, charged_at)
    if not found_from then
      found = front
      found_from, found_note = find_mark(front, first, charged_at)
    end
    if not found_from and gone < blocks then
      local number, text = find_block(charged_at)
      if number then
        found, found_block = text, number
        found_from, found_note = find_mark(text, 1, charged_at)
      end
    end
    edit, edit_at, edit_count = "r", charged_at, units < found_note and units or found_note
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

  -- What follows of the marks without the oldest `excess` units, and how many of those they do not have.
  local function trimmed(kept, excess)
    local from = 1
    while from <= #kept do
      local at, note = unpack("<dd", kept, from)
      if note > excess then return pack("<dd", at, note - excess) .. sub(kept, from + 16), 0 end
      excess, from = excess - note, from + 16
    end
    return "", excess
  end

  -- What is known of a block.
  local function entry(block)
    local units = 0
    for from = 9, #block, 16 do units = capped(units + unpack("<d", block, from)) end
    return pack("<ddH", unpack("<d", block, #block - 15), units, #block / 16)
  end

  -- Stores the oldest marks, the blocks from `from` to before `to` as `known` tells of them, and the newest marks. When those are many, the
  -- oldest of them become a block.
  local function arrange(oldest, from, to, known, latest)
    local added
    if from == to then
      local all = oldest .. latest
      if #all <= WHOLE_BYTES then
        new_marks, new_middle = all, ""
        return
      end
      oldest, latest, known, held = sub(all, 1, BLOCK_BYTES), sub(all, BLOCK_BYTES + 1), "", 0
    end
    while #latest > BLOCK_BYTES + LAST_BYTES do
      local block = sub(latest, 1, BLOCK_BYTES)
      added = added or {}
      added[#added + 1] = block
      known, latest, held = known .. entry(block), sub(latest, BLOCK_BYTES + 1), held + BLOCK_BYTES / 16
    end
    new_marks, new_middle = oldest .. latest, pack("<I4I4", #oldest, held) .. known
    if added or from > 0 or to < blocks then new_edit = { from = from, to = to, added = added } end
  end

  local function save_refund(oldest, latest)
    local from, to, known = gone, blocks, sub(middle, gone * 18 + 9)
    local rest, block = found, nil
    if found_from then
      local kept = found_note > edit_count and pack("<dd", edit_at, found_note - edit_count) or ""
      rest = sub(found, 1, found_from - 1) .. kept .. sub(found, found_from + 16)
    end
    if found_block then
      block = rest
      local at, _, number = unpack("<ddH", middle, found_block * 18 + 9)
      held = held - number + #rest / 16
      local told = rest ~= "" and entry(rest) or pack("<ddH", at, 0, 0)
      local before = (found_block - gone) * 18
      known = sub(known, 1, before) .. told .. sub(known, before + 19)
    elseif found == back then
      latest = sub(rest, start)
      while latest == "" and to > from do
        to = to - 1
        local at, units, number = unpack("<ddH", middle, to * 18 + 9)
        if units > 0 then latest = read_block(to, at) end
        known, held = sub(known, 1, -19), held - number
      end
    else
      oldest = sub(rest, first)
    end
    arrange(oldest, from, to, known, latest)
    if block and new_middle ~= "" then
      new_edit = new_edit or { from = from, to = to }
      new_edit.changed, new_edit.block = found_block, block
    end
  end

  local function save()
    new_fresh, new_word = 0, 0
    if count > 0 then new_fresh, new_word = capped(newest() + window), count end
    local oldest, from, latest = sub(front, first), gone, sub(back, start)
    if edit == "r" then return save_refund(oldest, latest) end
    local added, at, note = pack("<dd", edit_at, edit_count), nil, 0
    local text = latest ~= "" and latest or oldest
    if text ~= "" then at, note = unpack("<dd", text, #text - 15) end
    if at and (edit == "m" or at == edit_at) then
      added = pack("<dd", edit_at, capped(note + edit_count))
      if latest ~= "" then latest = sub(latest, 1, -17) else oldest = sub(oldest, 1, -17) end
    end
    latest = latest .. added
    if forgotten > 0 then
      local excess
      oldest, excess = trimmed(oldest, forgotten)
      while excess > 0 and from < blocks do
        local last, units, number = unpack("<ddH", middle, from * 18 + 9)
        if units <= excess then
          excess = excess - units
        else
          oldest, excess = trimmed(read_block(from, last), excess)
        end
        from, held = from + 1, held - number
      end
      if excess > 0 then latest = trimmed(latest, excess) end
    end
    arrange(oldest, from, blocks, sub(middle, from * 18 + 9), latest)
  end

  return {
    read = read, load = load, remaining = left, fits = fits, wait = wait, refund = refund, deny = deny,
    reset_after = reset_after, save = save, charge = record,
  }
end
