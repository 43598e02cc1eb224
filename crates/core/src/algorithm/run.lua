-- What an intent means, what a soft limit adds and what is reported: mod.rs.

-- Whether the new state is to be stored.
local changed = false

local function save(m, since)
  new_previous, new_marks, new_ahead, new_between, new_edit, new_over, changed = 0, "", 0, 0, nil, since, true
  m.save()
end

local function report(m)
  remaining, reset = m.remaining(), m.reset_after()
  excess = m.excess and m.excess() or 0
end

-- When a key that is fresh now and that nobody asks about meanwhile admits the cost. Leaves another time.
local function opens_anew(m)
  local due = now
  m.load()
  if not m.fits(cost) then
    local wait = m.wait(cost)
    if not wait then return nil end
    due = capped(now + wait)
  end
  now = due
  m.load()
  return m.fits(cost) and due or nil
end

-- How long until a key that is fresh at `from` and that nobody asks about meanwhile admits the cost. Leaves the machine
-- with another state.
local function wait_anew(m, from)
  local asked_at = now
  fresh, word, previous, over, marks, between = 0, 0, 0, 0, "", 0
  now = from
  -- Whoever goes on after windows were missing goes on at the time of the question.
  local done, due = pcall(opens_anew, m)
  now = asked_at
  if not done then error(due) end
  return due and less(due, asked_at)
end

-- How long until a cost that is denied now is admitted. Leaves the machine with another state and, for a soft limit, with its
-- lenient parameters.
local function wait_for(m, arg, raised, hardens_at, fresh_at)
  local wait = m.wait(cost)
  if not raised then return wait end
  m.read(arg, raised)
  local above = m.wait(cost)
  if above and capped(now + above) < hardens_at and not (wait and wait <= above) then wait = above end
  local anew = wait_anew(m, fresh_at > now and fresh_at or now)
  if anew and not (wait and wait <= anew) then wait = anew end
  return wait
end

local function deny(m, intent, arg, raised, hardens_at, moved)
  allowed = false
  local fresh_at, adjusted = fresh, m.is_adjusted and m.is_adjusted()
  if intent == SPEND and ((m.deny and m.deny(cost)) or adjusted or moved) then
    fresh_at = capped(now + (m.kept_for or m.reset_after)())
    save(m, over)
  elseif adjusted and fresh > 0 then
    fresh_at = capped(now + (m.kept_for or m.reset_after)())
  end
  report(m)
  retry = wait_for(m, arg, raised, hardens_at, fresh_at)
end

-- Answers by a machine whose parameters are those at `hard` in `arg`; those of the lenient form, if there is one, are at
-- `raised`, and it stays lenient for `lasting`.
local function run(m, intent, arg, hard, raised, lasting)
  allowed, overage, retry, delay, changed = true, false, 0, 0, false
  if fresh <= now then fresh, word, previous, over, marks, between = 0, 0, 0, 0, "", 0 end
  m.load()
  local moved = false
  if raised and over > 0 then
    if m.is_adjusted and m.is_adjusted() and (m.kept_for or m.reset_after)() == 0 then
      -- After a clock was set back there may be as good as nothing: then nothing is known of an overage either.
      over, moved = 0, true
    elseif over > now + MOST_APART then
      over, moved = now > 0 and now or 1, true
    end
  end
  if intent <= PEEK then
    if cost > 0 then
      if m.fits(cost) then
        if m.delay then delay = m.delay() end
        if intent == SPEND then
          m.charge(cost)
          save(m, 0)
        end
      else
        local hardens_at = MAX
        if raised then
          if over > 0 then hardens_at = capped(over + lasting) end
          if now < hardens_at then
            m.read(arg, raised)
            overage = m.fits(cost)
            if overage and m.delay then delay = m.delay() end
            m.read(arg, hard)
          end
        end
        if not overage then return deny(m, intent, arg, raised, hardens_at, moved) end
        if intent == SPEND then
          local since = over
          -- The epoch itself means "not exceeded".
          if since == 0 then since = now > 0 and now or 1 end
          m.charge(cost)
          save(m, since)
        end
      end
    end
  elseif intent == FORCE then
    if cost > 0 then
      if m.delay then delay = m.delay() end
      m.charge(cost)
      save(m, over)
    end
  elseif intent == REFUND then
    -- There is nothing to give back to a state that is as good as fresh.
    if cost > 0 and fresh > 0 and m.reset_after() > 0 then
      m.refund(cost)
      save(m, over)
    end
  elseif m.renew and m.renew() then
    save(m, over)
  else
    allowed, retry = false, nil
  end
  report(m)
end
