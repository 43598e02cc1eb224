-- Concurrency: concurrency.rs. A mark is when a lease expires and whose it is: 8 bytes each, the latter only ever compared.

local function concurrency()
  local slots, term, most
  -- The marks that have not expired, how many, and when the last one of all expires.
  local kept, held, last
  -- The clock was set back since these leases were taken.
  local moved

  local function read(arg, at)
    cost, slots, term, most, lease, at = unpack("<ddddc8", arg, at)
    return at
  end

  -- What expires later than any lease can expires as one that is taken now.
  local function hold_back(latest)
    local parts = {}
    for from = 1, #marks, 16 do
      local till, owner = unpack("<dc8", marks, from)
      parts[#parts + 1] = pack("<dc8", till < latest and till or latest, owner)
    end
    marks = table.concat(parts)
  end

  local function load()
    local latest = capped(now + term)
    moved = #marks > 0 and unpack("<d", marks, #marks - 15) > latest + MOST_APART
    if moved then hold_back(latest) end
    local low, high = 0, #marks / 16
    while low < high do
      local middle = math.floor((low + high) / 2)
      if unpack("<d", marks, middle * 16 + 1) <= now then low = middle + 1 else high = middle end
    end
    last = 0
    if #marks > 0 then last = unpack("<d", marks, #marks - 15) end
    kept = sub(marks, low * 16 + 1)
    held = #kept / 16
  end

  local function left()
    return less(slots, held)
  end

  local function fits(count)
    return held + count <= slots
  end

  local function wait(count)
    if count > slots then return nil end
    local nth = held + count - slots
    if nth < 1 or nth > held then return nil end
    return less((unpack("<d", kept, nth * 16 - 15)), now)
  end

  local function expiry()
    local due = capped(now + term)
    return last > due and last or due
  end

  -- Takes the lease's marks out, at most so many, the oldest first; says how many there were.
  local function take_out(count)
    local parts, taken, from, done = {}, 0, 1, 1
    while taken < count do
      local at = string.find(kept, lease, from, true)
      if not at then break end
      if at % 16 == 9 then
        parts[#parts + 1] = sub(kept, done, at - 9)
        taken, done = taken + 1, at + 8
        from = done
      else
        from = at + 1
      end
    end
    if taken > 0 then
      parts[#parts + 1] = sub(kept, done)
      kept = table.concat(parts)
    end
    return taken
  end

  local function charge(count)
    local room = less(most < 1 and 1 or most, held)
    if count > room then count = room end
    if count > 0 then
      last = expiry()
      kept = kept .. string.rep(pack("<dc8", last, lease), count)
      held = held + count
    end
  end

  local function refund(count)
    held = held - take_out(count)
    last = now
    if held > 0 then last = unpack("<d", kept, #kept - 15) end
  end

  local function renew()
    local count = take_out(held)
    if count == 0 then return false end
    last = expiry()
    kept = kept .. string.rep(pack("<dc8", last, lease), count)
    return true
  end

  local function is_adjusted()
    return moved
  end

  local function reset_after()
    if held == 0 then return 0 end
    return less(last, now)
  end

  local function save()
    new_fresh, new_word, new_marks = 0, 0, kept
    if held > 0 then new_fresh = last end
  end

  return {
    read = read, load = load, remaining = left, fits = fits, wait = wait, charge = charge,
    refund = refund, renew = renew, is_adjusted = is_adjusted, reset_after = reset_after, save = save,
  }
end
