-- Sliding window counter: sliding_counter.rs. Rounding is 0 for none or up and 1 for down.

-- How many whole units are left beside a count of which `covered` of the window still matters.
local function left_beside(limit, current, fading, covered, window, rounding)
  local q, r = muldiv(fading, covered, window)
  if rounding == 0 and r > 0 then q = q + 1 end
  return less(limit, q + current)
end

-- The first instant of a window, counted from its start, at which a fading count leaves `room` units free.
local function elapsed_until(count, room, window, rounding)
  if count == 0 then return 0 end
  if rounding == 0 then return less(window, (muldiv(room, window, count))) end
  local q, r = muldiv(room + 1, window, count)
  if r == 0 then q = q - 1 end
  return less(window, q)
end

local function sliding_counter()
  local limit, window, rounding
  local at, start, current, before, moved

  local function read(arg, from)
    cost, limit, window, rounding, from = unpack("<dddB", arg, from)
    return from
  end

  local function load()
    moved = false
    if fresh == 0 then
      local _, into = divide(now, window)
      start, current, before = now - into, 0, 0
    else
      start, current, before = less(fresh, 2 * window), word, previous
      if start > now + MOST_APART then
        local _, into = divide(now, window)
        local both = word + previous
        if both > limit then both = limit end
        start, current, before, moved = now - into, both > word and both or word, 0, true
      elseif now >= start + window then
        start, current, before = start + window, 0, word
      end
    end
    at = now > start and now or start
  end

  local function left()
    return left_beside(limit, current, before, window - (at - start), window, rounding)
  end

  local function fits(units)
    return units <= left()
  end

  local function wait(units)
    local due
    if current + units <= limit then
      due = start + elapsed_until(before, limit - current - units, window, rounding)
    elseif units <= limit then
      due = start + window + elapsed_until(current, limit - units, window, rounding)
    else
      return nil
    end
    return capped(less(due, now))
  end

  local function charge(units)
    current = current + units
    if current > MAX_COUNT then current = MAX_COUNT end
  end

  local function refund(units)
    if charged_at >= start then
      current = less(current, units)
    elseif charged_at + window >= start then
      before = less(before, units)
    end
  end

  local function is_adjusted()
    return moved
  end

  local function reset_after()
    if current > 0 then return capped(less(start + 2 * window, now)) end
    if before > 0 then return capped(less(start + window, now)) end
    return 0
  end

  local function save()
    local from
    if current > 0 then
      from, new_word, new_previous = start, current, before
    elseif before > 0 then
      from, new_word, new_previous = less(start, window), before, 0
    else
      new_fresh, new_word, new_previous = 0, 0, 0
      return
    end
    new_fresh = capped(from + 2 * window)
  end

  return {
    read = read, load = load, remaining = left, fits = fits, wait = wait, charge = charge,
    refund = refund, is_adjusted = is_adjusted, reset_after = reset_after, save = save,
  }
end
