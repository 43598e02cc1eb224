-- Fixed window, and where windows begin and end: fixed_window.rs.

-- Windows on the clock (length, offset), from the first event on (length), or by the calendar: as many instants as were
-- sent, of which each begins the window that the next one ends.
local function window_frame()
  local form, length, offset, bounds

  local function read(arg, at, as, long, shifted)
    form, length, offset = as, long, shifted
    if form == 2 then
      bounds = {}
      for i = 1, length do bounds[i], at = unpack("<d", arg, at) end
    end
    return at
  end

  local function by_calendar(instant)
    local last = #bounds
    if instant < bounds[1] or instant >= bounds[last] then
      -- The windows that were sent do not reach that far.
      error({ at = instant })
    end
    local i = 1
    while bounds[i + 1] <= instant do i = i + 1 end
    return bounds[i], bounds[i + 1]
  end

  -- The window that a key without state is in.
  local function at(instant)
    if form == 0 then
      if instant < offset then return less(offset, length), offset end
      local _, into = divide(instant - offset, length)
      return instant - into, capped(instant - into + length)
    elseif form == 1 then
      return instant, capped(instant + length)
    end
    return by_calendar(instant)
  end

  -- The window that a key is in whose state ends at an instant, and whether it is another one because the clock was set back.
  local function kept(finish)
    if form ~= 2 then
      local start = less(finish, length)
      if start > now + MOST_APART then return now, capped(now + length), true end
      return start, finish, false
    end
    -- What is beyond all that was sent begins after the next window, if that one was sent.
    local start, till = MAX, 0
    if finish <= bounds[#bounds] then start, till = by_calendar(less(finish, 1)) end
    if start <= now + MOST_APART then return start, till, false end
    local _, next_start = by_calendar(now)
    local _, next_finish = by_calendar(next_start)
    if start > next_start then return next_start, next_finish, true end
    return start, till, false
  end

  return {
    read = read, at = at, kept = kept,
  }
end

local function fixed_window()
  local frame = window_frame()
  local limit, records, form, length, offset
  local start, finish, count, moved

  local function read(arg, at)
    cost, limit, records, form, length, offset, at = unpack("<ddBBdd", arg, at)
    return frame.read(arg, at, form, length, offset)
  end

  local function load()
    if fresh == 0 then
      start, finish = frame.at(now)
      count, moved = 0, false
    else
      start, finish, moved = frame.kept(fresh)
      count = word
    end
  end

  local function left()
    return less(limit, count)
  end

  local function excess()
    local above = less(count, limit)
    if above > 4294967295 then return 4294967295 end
    return above
  end

  local function fits(units)
    return count + units <= limit
  end

  local function wait(units)
    if units > limit then return nil end
    return less(finish, now)
  end

  local function charge(units)
    count = capped(count + units)
  end

  local function refund(units)
    if charged_at >= start then count = less(count, units) end
  end

  local function is_adjusted()
    return moved
  end

  local function deny(units)
    if records == 0 then return false end
    charge(units)
    return true
  end

  local function reset_after()
    if count == 0 then return 0 end
    return less(finish, now)
  end

  local function save()
    if count == 0 then
      new_fresh, new_word = 0, 0
    else
      new_fresh, new_word = finish, count
    end
  end

  return {
    read = read, load = load, remaining = left, excess = excess, fits = fits, wait = wait,
    charge = charge, refund = refund, deny = deny, is_adjusted = is_adjusted,
    reset_after = reset_after, save = save,
  }
end
