-- The commonest of all questions, each in one piece: whether a spend fits into a bucket, a queue, a window on the clock, a paced budget
-- or a sliding counter, in moderate numbers. A pure function, which costs a call of the script less than the machines do.
--
-- Says whether it fits, what is left then, how long until all is, how long to wait (to proceed, or to ask again), the state to be
-- stored if it fits, and where the parameters end. Says nothing where numbers are large or anything is special: that is for the
-- machines, which would answer all of these in the same way.
local function quick(now, fresh, word, previous, kind, arg, at)
  -- Below this bound no quotient is rounded up to the next integer, so that remainders are exact.
  if now > MODERATE then return end
  if kind == 1 then
    local units, capacity, micros, span, more
    units, capacity, micros, span, more, at = unpack("<ddddB", arg, at)
    -- All stretches are in parts of a microsecond of which a unit takes a whole number.
    local parts = 1
    if more > 0 then
      local span_p, unfilled_w, unfilled_p, hold, loan
      parts, span_p, unfilled_w, unfilled_p, hold, loan, at = unpack("<dddddd", arg, at)
      if unfilled_w + unfilled_p + hold + loan > 0 then return end
      span = span * parts + span_p
    end
    local drained, needed = 0, units * micros
    if fresh > now then
      drained = (fresh - now) * parts
      if word > 0 then drained = drained - parts + word end
    end
    if units == 0 or units > capacity or word >= parts or drained > span or span + needed > MODERATE then
      return
    end
    local wait = drained + needed - span
    local fits = wait <= 0
    if fits then drained, wait = drained + needed, 0 end
    local free, part, wait_part = span - drained, drained % parts, wait % parts
    local left, reset = (free - free % micros) / micros, (drained - part) / parts
    if part > 0 then reset = reset + 1 end
    wait = (wait - wait_part) / parts
    if wait_part > 0 then wait = wait + 1 end
    if now + reset > MAX then return end
    return fits, left, reset, wait, now + reset, part, 0, at
  elseif kind == 4 then
    local units, limit, records, form, length, offset
    units, limit, records, form, length, offset, at = unpack("<ddBBdd", arg, at)
    if units == 0 or units > limit or form > 0 or now < offset then return end
    local finish, count = fresh, word
    if finish <= now then
      local into = (now - offset) % length
      finish, count = now - into + length, 0
      if finish > MAX then return end
    elseif finish - length > now + MOST_APART then
      return
    end
    if count + units <= limit then
      return true, limit - count - units, finish - now, 0, finish, count + units, 0, at
    end
    if records > 0 or count > limit then return end
    return false, limit - count, finish - now, finish - now, 0, 0, 0, at
  elseif kind == 6 then
    local units, limit, window, rounding
    units, limit, window, rounding, at = unpack("<dddB", arg, at)
    local start, current, before = fresh - 2 * window, word, previous
    if fresh <= now then
      start, current, before = now - now % window, 0, 0
    elseif start < 0 then
      return
    elseif now >= start + window then
      start, current, before = start + window, 0, word
    end
    local covered, finish = window - (now - start), start + 2 * window
    local fading = before * covered
    if units == 0 or units > limit or covered <= 0 or covered > window or fading > MODERATE or finish > MAX then
      return
    end
    local faded = fading % window
    local counted = (fading - faded) / window + current
    if faded > 0 and rounding == 0 then counted = counted + 1 end
    if counted + units <= limit then
      return true, limit - counted - units, finish - now, 0, finish, current + units, before, at
    end
    -- A count fades until it leaves room: that of the window before this one, or, from the end of this one on, its own.
    local due, count, room = start, before, limit - current - units
    if room < 0 then due, count, room = start + window, current, limit - units end
    room = (room + rounding) * window
    if counted > limit or count == 0 or room > MODERATE then return end
    local kept = room % count
    local stays = (room - kept) / count
    if rounding > 0 and kept == 0 then stays = stays - 1 end
    if stays < window then due = due + window - stays end
    local reset = current > 0 and finish - now or finish - window - now
    return false, limit - counted, reset, due > now and due - now or 0, 0, 0, 0, at
  elseif kind == 3 then
    local units, parts, micros, places, depth, depth_p, patience
    units, parts, micros, places, depth, depth_p, patience, at = unpack("<ddddddd", arg, at)
    depth, patience = depth * parts + depth_p, patience * parts
    local ahead, needed = 0, units * micros
    if fresh > now then
      ahead = (fresh - now) * parts
      if word > 0 then ahead = ahead - parts + word end
    end
    if units == 0 or units > places or word >= parts or ahead > depth or needed > depth or depth + needed > MODERATE then
      return
    end
    local fits, wait = ahead <= patience and ahead + needed <= depth, ahead
    if fits then
      ahead = ahead + needed
    else
      wait = ahead + needed - depth
      if ahead - patience > wait then wait = ahead - patience end
    end
    local free, part, wait_part = depth - ahead, ahead % parts, wait % parts
    local left, reset = ahead <= patience and (free - free % micros) / micros or 0, (ahead - part) / parts
    if part > 0 then reset = reset + 1 end
    wait = (wait - wait_part) / parts
    if wait_part > 0 then wait = wait + 1 end
    if now + reset > MAX then return end
    return fits, left, reset, wait, now + reset, part, 0, at
  elseif kind == 9 then
    local units, budget, most, slack, form, length, offset
    units, budget, most, slack, form, length, offset, at = unpack("<ddddBdd", arg, at)
    if units == 0 or form > 0 or now < offset then return end
    local finish, spent = fresh, word
    if finish <= now then
      local into = (now - offset) % length
      finish, spent = now - into + length, 0
      if finish > MAX then return end
    elseif finish - length > now + MOST_APART then
      return
    end
    local start = finish - length
    local earned = now > start and budget * (now - start) or 0
    if start < 0 or earned > MODERATE then return end
    local left = (earned - earned % length) / length + slack
    if left > most then left = most end
    left = left - spent
    if units <= left then
      return true, left - units, finish - now, 0, finish, spent + units, 0, at
    end
    local total = spent + units
    if left < 0 or total > most or budget == 0 then return end
    -- How far into the window so much may have been spent.
    local early = total > slack and (total - slack) * length or 0
    if early > MODERATE then return end
    local late = early % budget
    local elapsed = (early - late) / budget
    if late > 0 then elapsed = elapsed + 1 end
    if elapsed >= length then return end
    local due = start + elapsed
    return false, left, spent > 0 and finish - now or 0, due > now and due - now or 0, 0, 0, 0, at
  end
end
