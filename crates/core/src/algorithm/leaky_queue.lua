-- Leaky bucket as a queue: leaky_queue.rs.

local function leaky_queue()
  local units, micros, places, depth_w, depth_p, max_wait
  -- The next free departure; how much more than fits was forced in, at most; whether the clock was set back since.
  local free_w, free_p, forced, moved

  local function read(arg, at)
    cost, units, micros, places, depth_w, depth_p, max_wait, at = unpack("<ddddddd", arg, at)
    return at
  end

  local function load()
    free_w, free_p, forced, moved = now, 0, 0, false
    if fresh == 0 then return end
    local part, whole = word, fresh
    if units < LOAN then forced, part = divide(word, LOAN) end
    if part > units - 1 then part = units - 1 end
    if part > 0 then whole = less(whole, 1) end
    if longer(whole, part, now, 0) then free_w, free_p = whole, part end
    if not longer(free_w - now, free_p, depth_w, depth_p) then
      forced = 0
    elseif units < LOAN and forced < LOAN - 1 then
      local w, p = depth_w, depth_p
      if forced > 0 then
        w, p = times(forced, units, micros)
        w, p = add_stretch(depth_w, depth_p, w, p, units)
      end
      moved = free_w - now - w > MOST_APART
      if moved then free_w, free_p = add_stretch(now, 0, w, p, units) end
    end
  end

  local function left()
    local ahead = free_w - now
    if longer(ahead, free_p, max_wait, 0) then return 0 end
    local w, p = less_stretch(depth_w, depth_p, ahead, free_p, units)
    return units_within(w, p, units, micros)
  end

  local function fits(count)
    local ahead = free_w - now
    if count > places or longer(ahead, free_p, max_wait, 0) then return false end
    local w, p = times(count, units, micros)
    w, p = add_stretch(ahead, free_p, w, p, units)
    return not longer(w, p, depth_w, depth_p)
  end

  local function wait(count)
    if count > places then return nil end
    local ahead = free_w - now
    local w, p = times(count, units, micros)
    w, p = less_stretch(depth_w, depth_p, w, p, units)
    w, p = less_stretch(ahead, free_p, w, p, units)
    local vw, vp = less_stretch(ahead, free_p, max_wait, 0, units)
    if longer(vw, vp, w, p) then w, p = vw, vp end
    return ceil_of(w, p)
  end

  local function charge(count)
    local w, p = times(count, units, micros)
    free_w, free_p = add_stretch(free_w, free_p, w, p, units)
    w, p = less_stretch(free_w - now, free_p, depth_w, depth_p, units)
    if w > 0 or p > 0 then
      forced = units_within(w, p, units, micros)
      local tw, tp = times(forced, units, micros)
      if longer(w, p, tw, tp) then forced = forced + 1 end
    end
  end

  local function refund(count)
    local w, p = times(count, units, micros)
    w, p = less_stretch(free_w, free_p, w, p, units)
    if ceil_of(w, p) == charged_at then
      free_w, free_p = now, 0
      if longer(w, p, now, 0) then free_w, free_p = w, p end
    end
  end

  local function is_adjusted()
    return moved
  end

  local function reset_after()
    return ceil_of(free_w - now, free_p)
  end

  local function save()
    new_fresh, new_word = capped(ceil_of(free_w, free_p)), free_p
    if units < LOAN and longer(free_w - now, free_p, depth_w, depth_p) then
      new_word = new_word + (forced < LOAN and forced or LOAN - 1) * LOAN
    end
  end

  return {
    read = read, load = load, remaining = left, fits = fits, wait = wait, charge = charge,
    refund = refund, is_adjusted = is_adjusted, reset_after = reset_after, save = save, delay = reset_after,
  }
end
