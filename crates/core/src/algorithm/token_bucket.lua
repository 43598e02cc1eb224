-- Token bucket with continuous refill: token_bucket.rs.

local function token_bucket()
  local capacity, units, micros, span_w, span_p, unfilled_w, unfilled_p, hold, loan
  local drained_w, drained_p, borrowed, adjusted
  -- How far from full the bucket is once what was asked for last is taken.
  local next_w, next_p, next_count

  local function read(arg, at)
    local more
    cost, capacity, micros, span_w, more, at = unpack("<ddddB", arg, at)
    if more == 0 then
      units, span_p, unfilled_w, unfilled_p, hold, loan = 1, 0, 0, 0, 0, 0
    else
      units, span_p, unfilled_w, unfilled_p, hold, loan, at = unpack("<dddddd", arg, at)
    end
    return at
  end

  local function in_debt()
    return drained_w > span_w or (drained_w == span_w and drained_p > span_p)
  end

  local function load()
    borrowed, adjusted, next_count = 0, false, nil
    if fresh == 0 then
      drained_w, drained_p, adjusted = unfilled_w, unfilled_p, hold > 0
      return
    end
    local part = word
    if part == 0 and hold == 0 then
      -- Whole microseconds and nothing special, as most are.
      local w = fresh - now
      if w <= span_w then
        drained_w, drained_p = w > 0 and w or 0, 0
        return
      end
    end
    if units < LOAN then
      borrowed, part = divide(word, LOAN)
    elseif word >= FORCED then
      borrowed, part = LOAN - 1, word - FORCED
    end
    if part > units - 1 then part = units - 1 end
    local w = less(fresh, now) - hold
    if part > 0 then w = w - 1 end
    if w < 0 then w, part = 0, 0 end
    drained_w, drained_p = w, part
    if not in_debt() then
      borrowed = 0
    elseif borrowed < LOAN - 1 then
      local most_w, most_p = span_w, span_p
      if borrowed > 0 then
        most_w, most_p = times(borrowed, units, micros)
        most_w, most_p = add_stretch(span_w, span_p, most_w, most_p, units)
      end
      if drained_w - most_w > MOST_APART then drained_w, drained_p, adjusted = most_w, most_p, true end
    end
  end

  local function left()
    if units == 1 and drained_w <= span_w then
      local free = span_w - drained_w
      local q = free / micros
      q = q - q % 1
      if q * micros > free then q = q - 1 end
      return q + loan
    end
    if in_debt() then return less(loan, borrowed) end
    local w, p = less_stretch(span_w, span_p, drained_w, drained_p, units)
    return units_within(w, p, units, micros) + loan
  end

  local function drained_by(count)
    if next_count == count then return next_w, next_p end
    local w, p = times(count, units, micros)
    next_w, next_p = add_stretch(drained_w, drained_p, w, p, units)
    next_count = count
    return next_w, next_p
  end

  local function fits(count)
    if loan > 0 then return count <= left() end
    if count > capacity then return false end
    if units == 1 and loan == 0 then
      -- No more than the span, twice: exact.
      next_w, next_p, next_count = drained_w + count * micros, 0, count
      return next_w <= span_w
    end
    local w, p = drained_by(count)
    return not (w > span_w or (w == span_w and p > span_p))
  end

  local function wait(count)
    if count > capacity + loan then return nil end
    local w, p = times(less(count, loan), units, micros)
    w, p = less_stretch(span_w, span_p, w, p, units)
    return ceil_of(less_stretch(drained_w, drained_p, w, p, units))
  end

  local function borrowing(count)
    if in_debt() then return borrowed + count end
    local w, p = drained_by(count)
    w, p = less_stretch(w, p, span_w, span_p, units)
    local whole = units_within(w, p, units, micros)
    local tw, tp = times(whole, units, micros)
    if longer(w, p, tw, tp) then whole = whole + 1 end
    return whole
  end

  local function charge(count)
    local w, p = drained_by(count)
    if longer(w, p, span_w, span_p) then borrowed = borrowing(count) end
    drained_w, drained_p = w, p
    next_count = nil
  end

  local function refund(count)
    local w, p = times(count, units, micros)
    drained_w, drained_p = less_stretch(drained_w, drained_p, w, p, units)
    next_count = nil
    if in_debt() then
      if borrowed < LOAN - 1 then borrowed = less(borrowed, count) end
      if loan > 0 and borrowed < 1 then borrowed = 1 end
    else
      borrowed = 0
    end
  end

  local function is_adjusted()
    return adjusted
  end

  local function reset_after()
    return ceil_of(drained_w, drained_p)
  end

  local function kept_for()
    return capped(ceil_of(drained_w, drained_p) + hold)
  end

  local function save()
    local due = now + drained_w + hold
    if drained_p > 0 then due = due + 1 end
    if due > MAX then due = MAX end
    new_fresh, new_word = due, drained_p
    if units < LOAN then
      new_word = new_word + (borrowed < LOAN and borrowed or LOAN - 1) * LOAN
    elseif borrowed > 0 then
      new_word = new_word + FORCED
    end
  end

  return {
    read = read, load = load, remaining = left, fits = fits, wait = wait, charge = charge,
    refund = refund, is_adjusted = is_adjusted, reset_after = reset_after, kept_for = kept_for, save = save,
  }
end
