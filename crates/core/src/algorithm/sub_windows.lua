-- Sliding window counter of n sub-windows: sub_windows.rs. A mark is the start of a sub-window and its count.

local function sub_windows()
  local limit, length, number, rounding
  local starts, counts, size
  local at, start, oldest, later, moved

  local function read(arg, from)
    cost, limit, length, number, rounding, from = unpack("<ddddB", arg, from)
    return from
  end

  -- Adds up what is counted in the oldest sub-window that the rolling one reaches into, and in all later ones.
  local function add_up()
    local reach = less(start, number * length)
    local has_oldest = start >= number * length
    oldest, later = 0, 0
    for i = 1, size do
      local begin = starts[i]
      if has_oldest and begin == reach then
        oldest = oldest + counts[i]
      elseif begin >= reach then
        later = later + counts[i]
      end
    end
  end

  -- Reads the marks that the rolling window still reaches.
  local function load()
    starts, counts, size = {}, {}, 0
    local newest, bytes = 0, #marks
    if bytes > 0 then newest = unpack("<d", marks, bytes - 15) end
    local _, into = divide(now, length)
    start = now - into
    moved = newest > now + MOST_APART
    if newest > start and not moved then start = newest end
    local reach = less(start, number * length)
    for from = 1, bytes, 16 do
      local begin, count = unpack("<dd", marks, from)
      if moved and begin > start then begin = start end
      if begin >= reach and starts[size] == begin then
        counts[size] = capped(counts[size] + count)
      elseif begin >= reach then
        size = size + 1
        starts[size], counts[size] = begin, count
      end
    end
    at = now > start and now or start
    add_up()
  end

  local function left()
    return left_beside(limit, later, oldest, length - (at - start), length, rounding)
  end

  local function fits(units)
    return units <= left()
  end

  local function wait(units)
    local function due(from, fading, taken)
      if taken + units > limit then return nil end
      return capped(less(from + elapsed_until(fading, limit - taken - units, length, rounding), now))
    end
    local wait = due(start, oldest, later)
    if wait then return wait end
    -- What is counted after each, added up from the end: sums beyond 2^53 are not exact, and differences of them worse.
    local after, sum = {}, 0
    for i = size, 1, -1 do
      after[i] = sum
      sum = sum + counts[i]
    end
    local covered = number * length
    for i = 1, size do
      local from = starts[i] + covered
      if from > start then
        wait = due(from, counts[i], after[i])
        if wait then return wait end
      end
    end
    return nil
  end

  local function charge(units)
    units = capped(units)
    if size > 0 and starts[size] == start then
      counts[size] = capped(counts[size] + units)
    else
      size = size + 1
      starts[size], counts[size] = start, units
    end
    later = later + units
  end

  local function refund(units)
    local _, into = divide(charged_at, length)
    for i = 1, size do
      if starts[i] == charged_at - into then counts[i] = less(counts[i], units) end
    end
    add_up()
  end

  local function fresh_at()
    for i = size, 1, -1 do
      if counts[i] > 0 then return capped(starts[i] + (number + 1) * length) end
    end
    return 0
  end

  local function is_adjusted()
    return moved
  end

  local function reset_after()
    return less(fresh_at(), now)
  end

  local function save()
    new_fresh, new_word = fresh_at(), 0
    local kept = {}
    for i = 1, size do
      if counts[i] > 0 then kept[#kept + 1] = pack("<dd", starts[i], counts[i]) end
    end
    new_marks = table.concat(kept)
  end

  return {
    read = read, load = load, remaining = left, fits = fits, wait = wait, charge = charge,
    refund = refund, is_adjusted = is_adjusted, reset_after = reset_after, save = save,
  }
end
