-- The commonest of all questions, each in one piece: a spend that fits, of a bucket of whole microseconds, of a window on the clock or of a
-- sliding counter, in moderate numbers. All others are false here and left to the machines, which would answer these in the same way.

local function quick(kind, arg, at)
  if over > 0 then return false end
  if kind == 1 then
    local units, capacity, micros, span, more = unpack("<ddddB", arg, at)
    if more > 0 or word > 0 or units > capacity or units == 0 then return false end
    local drained = units * micros
    if fresh > now then drained = drained + fresh - now end
    if drained > span or now + drained > MAX then return false end
    local free = span - drained
    local q = free / micros
    q = q - q % 1
    if q * micros > free then q = q - 1 end
    new_fresh, new_word, new_previous, remaining, reset = now + drained, 0, 0, q, drained
    return true
  elseif kind == 4 then
    local total, limit, _, form, length, offset = unpack("<ddBBdd", arg, at)
    if form > 0 or now < offset or total == 0 then return false end
    local finish = fresh
    if finish > now then
      total = total + word
    else
      local into = (now - offset) % length
      finish = now - into + length
      -- A remainder that was rounded is none.
      if into < 0 or into >= length or finish > MAX then return false end
    end
    if total > limit then return false end
    new_fresh, new_word, new_previous, remaining, reset = finish, total, 0, limit - total, finish - now
    return true
  elseif kind == 6 then
    local units, limit, window, rounding = unpack("<dddB", arg, at)
    local start, current, before = fresh - 2 * window, word, previous
    if fresh <= now then
      start, current, before = now - now % window, 0, 0
    elseif start < 0 then
      return false
    elseif now >= start + window then
      start, current, before = start + window, 0, word
    end
    local covered = window - (now - start)
    local fading = before * covered
    if units == 0 or covered <= 0 or covered > window or fading > MAX then return false end
    local q = fading / window
    q = q - q % 1
    local r = fading - q * window
    if r < 0 then return false end
    if r > 0 and rounding == 0 then q = q + 1 end
    current = current + units
    local finish = start + 2 * window
    if q + current > limit or finish > MAX then return false end
    new_fresh, new_word, new_previous, remaining, reset = finish, current, before, limit - q - current, finish - now
    return true
  end
  return false
end
