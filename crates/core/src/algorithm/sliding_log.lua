-- Sliding window log: sliding_log.rs. A mark is an instant and how much was counted then, 16 bytes; they are read where they
-- are, since there may be many.
--
-- Of many marks a state has the oldest, the first `ahead` bytes of `marks`, and the newest. The `between` marks between them are kept
-- elsewhere, in blocks that `read_block` gets one at a time, and with an index of them that `read_index` gets: for each block the
-- instant of its last mark, its units and its marks, 18 bytes. Most questions need neither. As long as there are marks in blocks, there are
-- some after them. A block whose marks were all given back is empty and stays until its time is over.

local function sliding_log()
  local limit, window, records, most
  -- The oldest marks, and where the first of them in the window begins; the newest marks, likewise; and of the blocks how many have left
  -- it or are among the oldest now, and how many marks the others have.
  local front, first, back, start, gone, held
  -- How many marks are in blocks when all is done.
  local staying
  -- The index and how many blocks it has, once it is read.
  local index, blocks
  -- How many units are in the window.
  local count
  -- What is to be done to the marks: at which instant how many are added ("a"), added to the newest ("m") or given back ("r").
  local edit, edit_at, edit_count, forgotten
  -- Where what is given back was counted: in these marks, or in those of a block, from this byte on, so much.
  local found, found_block, found_from, found_note
  -- The clock was set back since these marks were made.
  local moved

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

  local function get_index()
    if index then return end
    index = between > 0 and read_index() or ""
    blocks = #index / 18
  end

  -- The instant of a block's last mark, its units and its marks.
  local function about(number)
    return unpack("<ddH", index, number * 18 + 1)
  end

  -- The units and the marks of eight blocks. Reading many numbers at once is what makes it worth the while.
  local function about_eight(number)
    local _, a, i, _, b, j, _, c, k, _, d, l, _, e, m, _, f, n, _, g, o, _, h, p =
      unpack("<ddHddHddHddHddHddHddHddH", index, number * 18 + 1)
    return a + b + c + d + e + f + g + h, i + j + k + l + m + n + o + p
  end

  -- The first block from `gone` on whose last mark is not before the instant.
  local function search(instant)
    local low, high = gone, blocks
    while low < high do
      local number = math.floor((low + high) / 2)
      if about(number) < instant then low = number + 1 else high = number end
    end
    return low
  end

  -- Lets go of the blocks that have left the window, and takes the next to the oldest marks.
  local function pass_blocks()
    get_index()
    local next_block = search(now - window + 1)
    while gone < next_block do
      local step, _, units, number = 8, nil, 0, 0
      if gone + 8 <= next_block then
        units, number = about_eight(gone)
      else
        step, _, units, number = 1, about(gone)
      end
      gone, held, count = gone + step, held - number, less(count, units)
    end
    while first > #front and gone < blocks do
      local at, _, number = about(gone)
      if number > 0 then
        front = read_block(gone, at)
        first = passed(front)
      end
      gone, held = gone + 1, held - number
    end
  end

  -- All marks are brought together, and what is ahead becomes one mark at now.
  local function hold_back()
    if held > 0 then
      get_index()
      local all = { front }
      for number = 0, blocks - 1 do
        local at, units = about(number)
        if units > 0 then all[#all + 1] = read_block(number, at) end
      end
      all[#all + 1] = back
      front, back, gone, held = "", table.concat(all), blocks, 0
    end
    local from, later, at, note = #back - 15, 0, nil, 0
    while from >= 1 do
      at, note = unpack("<dd", back, from)
      if at <= now then break end
      later, from = capped(later + note), from - 16
    end
    if from >= 1 and at == now then later, from = capped(later + note), from - 16 end
    back = sub(back, 1, from + 15) .. pack("<dd", now, later)
  end

  local function load()
    count, edit, forgotten = word, nil, 0
    front, first, back, start, gone, held, index = "", 1, marks, 1, 0, between, nil
    if between > 0 then front, back = sub(marks, 1, ahead), sub(marks, ahead + 1) end
    moved = #back >= 16 and unpack("<d", back, #back - 15) > now + MOST_APART
    if moved then
      hold_back()
    elseif between > 0 then
      first = passed(front)
      if first > #front then pass_blocks() end
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
    local at = last_of(back)
    if at then return at end
    get_index()
    for number = blocks - 1, gone, -1 do
      local last, units = about(number)
      if units > 0 then at = last_of(read_block(number, last)) end
      if at then return at end
    end
    return last_of(front) or now
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
    if due then return due end
    local number = gone
    if held > 0 then
      get_index()
      while number + 8 <= blocks do
        local more = about_eight(number)
        if more >= still then break end
        number, still = number + 8, still - more
      end
    end
    for number = number, held > 0 and blocks - 1 or -1 do
      local at, more = about(number)
      if more < still then
        still = still - more
      elseif more > 0 then
        return (leaves(read_block(number, at), 1, still))
      end
    end
    return leaves(back, start, still) or less(capped(newest() + window), now)
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
    get_index()
    local number = search(instant)
    if number == blocks then return end
    local at, units = about(number)
    if units > 0 then return number, read_block(number, at) end
  end

  local function refund(units)
    found, found_block = back, nil
    found_from, found_note = find_mark(back, start, charged_at)
    if not found_from then
      found = front
      found_from, found_note = find_mark(front, first, charged_at)
    end
    if not found_from and held > 0 then
      local number, text = find_block(charged_at)
      if number then
        found, found_block = text, number
        found_from, found_note = find_mark(text, 1, charged_at)
      end
    end
    edit, edit_at, edit_count = "r", charged_at, units < found_note and units or found_note
    count = less(count, edit_count)
  end

  local function is_adjusted()
    return moved
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

  -- Stores the oldest marks, of the blocks those from `from` to before `to`, and the newest marks. When those are many, the oldest of
  -- them become a block.
  local function arrange(oldest, from, to, latest)
    local kept, added = nil, nil
    if staying == 0 then
      local all = oldest .. latest
      if #all <= WHOLE_BYTES then
        new_marks = all
        return
      end
      oldest, latest, kept = sub(all, 1, BLOCK_BYTES), sub(all, BLOCK_BYTES + 1), ""
      from, to = 0, 0
    end
    while #latest > BLOCK_BYTES + LAST_BYTES do
      local block = sub(latest, 1, BLOCK_BYTES)
      if not added then
        get_index()
        kept, added = kept or sub(index, from * 18 + 1, (to or blocks) * 18), {}
      end
      added[#added + 1] = block
      kept, latest, staying = kept .. entry(block), sub(latest, BLOCK_BYTES + 1), staying + BLOCK_BYTES / 16
    end
    new_marks, new_ahead, new_between = oldest .. latest, #oldest, staying
    if added or from > 0 or (to and to < blocks) then
      kept = kept or sub(index, from * 18 + 1, (to or blocks) * 18)
      new_edit = { from = from, to = to or blocks, added = added, index = kept }
    end
  end

  local function save_refund(oldest, latest)
    local from, to = gone, nil
    local rest = found
    if found_from then
      local kept = found_note > edit_count and pack("<dd", edit_at, found_note - edit_count) or ""
      rest = sub(found, 1, found_from - 1) .. kept .. sub(found, found_from + 16)
    end
    if found_block then
      local at, _, number = about(found_block)
      staying = staying - number + #rest / 16
      local told = rest ~= "" and entry(rest) or pack("<ddH", at, 0, 0)
      index = sub(index, 1, found_block * 18) .. told .. sub(index, found_block * 18 + 19)
    elseif found == back then
      latest = sub(rest, start)
      if latest == "" and staying > 0 then
        get_index()
        to = blocks
        while latest == "" and to > from do
          to = to - 1
          local at, units, number = about(to)
          if units > 0 then latest = read_block(to, at) end
          staying = staying - number
        end
      end
    else
      oldest = sub(rest, first)
    end
    arrange(oldest, from, to, latest)
    if found_block and new_between > 0 then
      new_edit = new_edit or { from = from, to = blocks, index = sub(index, from * 18 + 1) }
      new_edit.changed, new_edit.block = found_block, rest
    end
  end

  local function save()
    new_fresh, new_word = 0, 0
    if count > 0 then new_fresh, new_word = capped(newest() + window), count end
    local oldest, from, latest = sub(front, first), gone, sub(back, start)
    staying = held
    if not edit then return arrange(oldest, from, nil, latest) end
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
      if excess > 0 and staying > 0 then get_index() end
      while excess > 0 and staying > 0 do
        local last, units, number = about(from)
        if units <= excess then
          excess = excess - units
        else
          oldest, excess = trimmed(read_block(from, last), excess)
        end
        from, staying = from + 1, staying - number
      end
      if excess > 0 then latest = trimmed(latest, excess) end
    end
    arrange(oldest, from, nil, latest)
  end

  return {
    read = read, load = load, remaining = left, fits = fits, wait = wait, refund = refund, deny = deny,
    is_adjusted = is_adjusted, reset_after = reset_after, save = save, charge = record,
  }
end
