-- Pacing: pacing.rs.

local function pacing()
  local frame = window_frame()
  local budget, most, slack
  local start, finish, spent, moved

  local function read(arg, at)
    local form, length, offset
    cost, budget, most, slack, form, length, offset, at = unpack("<ddddBdd", arg, at)
    return frame.read(arg, at, form, length, offset)
  end

  -- How far into a window of this length a total may have been spent, if before its end.
  local function elapsed_for(total, length)
    if total > most then return nil end
    local elapsed = ceil_of(muldiv(less(total, slack), length, budget < 1 and 1 or budget))
    return elapsed < length and elapsed or nil
  end

  local function load()
    if fresh == 0 then
      start, finish = frame.at(now)
      spent, moved = 0, false
    else
      start, finish, moved = frame.kept(fresh)
      spent = word
    end
  end

  local function left()
    local length = finish - start
    local allowance = (muldiv(budget, less(now, start), length < 1 and 1 or length)) + slack
    if allowance > most then allowance = most end
    return less(allowance, spent)
  end

  local function fits(units)
    return units <= left()
  end

  local function wait(units)
    local elapsed = elapsed_for(spent + units, finish - start)
    if elapsed then return less(capped(start + elapsed), now) end
    -- After a clock was set back this one may end within the next.
    local from, till = frame.at(finish)
    elapsed = elapsed_for(units, till - from)
    if not elapsed then return nil end
    local due = capped(from + elapsed)
    return less(due > finish and due or finish, now)
  end

  local function charge(units)
    spent = capped(spent + units)
  end

  local function refund(units)
    if charged_at >= start then spent = less(spent, units) end
    if spent == 0 then start, finish = frame.at(now) end
  end

  local function is_adjusted()
    return moved
  end

  local function reset_after()
    if spent == 0 then return 0 end
    return less(finish, now)
  end

  local function save()
    if spent == 0 then
      new_fresh, new_word = 0, 0
    else
      new_fresh, new_word = finish, spent
    end
  end

  return {
    read = read, load = load, remaining = left, fits = fits, wait = wait, charge = charge,
    refund = refund, is_adjusted = is_adjusted, reset_after = reset_after, save = save,
  }
end
