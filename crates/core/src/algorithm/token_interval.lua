-- Token bucket that is refilled once per interval: token_interval.rs.

local function token_interval()
  local refill, interval, capacity, unfilled, hold
  local index, missing, adjusted

  local function read(arg, at)
    cost, refill, interval, capacity, unfilled, hold, at = unpack("<dddddd", arg, at)
    return at
  end

  local function full_index()
    return index + ceil_of(divide(missing, refill))
  end

  local function fresh_at()
    return capped((full_index() + hold) * interval)
  end

  -- From now to the start of an interval, counted from the start of this one so that no product is beyond 2^53.
  local function till(other)
    local base, into = divide(now, interval)
    return capped(less((other - base) * interval, into))
  end

  local function load()
    index = (divide(now, interval))
    adjusted = false
    if fresh == 0 then
      missing, adjusted = unfilled, hold > 0
      return
    end
    missing = word
    local full = less((divide(fresh, interval)), hold)
    local counted = less(full, ceil_of(divide(missing, refill)))
    local moved = counted > index + 1 and counted * interval > now + MOST_APART
    if moved then counted = index + 1 end
    missing = less(missing, less(index, counted) * refill)
    if counted > index then index = counted end
    adjusted = moved or (missing > 0 and fresh_at() ~= fresh)
  end

  local function left()
    return less(capacity, missing)
  end

  local function fits(count)
    return missing + count <= capacity
  end

  local function wait(count)
    if count > capacity then return nil end
    return till(index + ceil_of(divide(less(missing + count, capacity), refill)))
  end

  local function charge(count)
    missing = missing + count
    if missing > capacity then
      local most = less((divide(MAX, interval)), index + hold) * refill
      if missing > most then missing = most end
      missing = capped(missing)
    end
  end

  local function refund(count)
    missing = less(missing, count)
  end

  local function is_adjusted()
    return adjusted
  end

  local function reset_after()
    return till(full_index())
  end

  local function kept_for()
    return till(full_index() + hold)
  end

  local function save()
    new_fresh, new_word = fresh_at(), missing
  end

  return {
    read = read, load = load, remaining = left, fits = fits, wait = wait, charge = charge,
    refund = refund, is_adjusted = is_adjusted, reset_after = reset_after, kept_for = kept_for, save = save,
  }
end
