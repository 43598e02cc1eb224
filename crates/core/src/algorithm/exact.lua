-- Exact arithmetic on integers up to 2^53 in doubles; what the Rust does in u64 and u128.
--
-- A sum beyond 2^53 may be off by its last bit. That is harmless wherever it is then compared with, or cut to, something
-- that is not beyond it, and nothing else is done with such sums.

-- The quotient and the remainder of a / d, for a up to 2^53.
local function divide(a, d)
  local q = a / d
  q = q - q % 1
  local r = a - q * d
  -- The division may have been rounded up to the next integer.
  if r < 0 then return q - 1, r + d end
  return q, r
end

-- a * b / d where the product does not fit: an estimate, and then the exact remainder by limbs of 18 bits puts it right.
-- A quotient beyond 2^53 is some number beyond 2^53.
local function long_muldiv(a, b, d)
  local q = math.floor(a * b / d)
  if q > MAX + 8 then return q, 0 end
  local L = 262144
  local a1, b1, q1, d1 = math.floor(a / L), math.floor(b / L), math.floor(q / L), math.floor(d / L)
  local a0, b0, q0, d0 = a - a1 * L, b - b1 * L, q - q1 * L, d - d1 * L
  local a2, b2, q2, d2 = math.floor(a1 / L), math.floor(b1 / L), math.floor(q1 / L), math.floor(d1 / L)
  a1, b1, q1 = a1 - a2 * L, b1 - b2 * L, q1 - q2 * L
  local dm = d1 - d2 * L
  local r4 = a2 * b2 - q2 * d2
  local r3 = a2 * b1 + a1 * b2 - q2 * dm - q1 * d2
  local r2 = a2 * b0 + a1 * b1 + a0 * b2 - q2 * d0 - q1 * dm - q0 * d2
  local r1 = a1 * b0 + a0 * b1 - q1 * d0 - q0 * dm
  local r0 = a0 * b0 - q0 * d0
  -- The remainder is small, so the upper limbs are too.
  local high = ((r4 * L + r3) * L + r2) * L + r1
  local r = high * L + r0
  while r < 0 do
    q, high, r0 = q - 1, high + d1, r0 + d0
    r = high * L + r0
  end
  while r >= d do
    q, high, r0 = q + 1, high - d1, r0 - d0
    r = high * L + r0
  end
  return q, r
end

-- The quotient and the remainder of a * b / d.
local function muldiv(a, b, d)
  local p = a * b
  if p > MAX then return long_muldiv(a, b, d) end
  local q = p / d
  q = q - q % 1
  local r = p - q * d
  if r < 0 then return q - 1, r + d end
  return q, r
end

-- A quotient rounded up.
local function ceil_of(q, r)
  if r > 0 then return q + 1 end
  return q
end

-- An instant or a span, cut at the end of time.
local function capped(micros)
  if micros > MAX then return MAX end
  return micros
end

-- The difference, or zero.
local function less(a, b)
  if a > b then return a - b end
  return 0
end

-- Whether one stretch, whole microseconds and a part of one, is longer than another.
local function longer(aw, ap, bw, bp)
  return aw > bw or (aw == bw and ap > bp)
end

-- How long so many units take: a stretch.
local function times(count, units, micros)
  local w, p = muldiv(count, micros, units)
  if w > MAX then return MAX, 0 end
  return w, p
end

-- How many whole units fit into a stretch.
local function units_within(w, p, units, micros)
  local q, r = muldiv(w, units, micros)
  if p < micros - r then return q end
  return q + 1 + (divide(p - (micros - r), micros))
end

local function add_stretch(aw, ap, bw, bp, units)
  local w = aw + bw
  if ap < units - bp then
    if w > MAX then return MAX, 0 end
    return w, ap + bp
  end
  if w >= MAX then return MAX, 0 end
  return w + 1, ap - (units - bp)
end

local function less_stretch(aw, ap, bw, bp, units)
  if not longer(aw, ap, bw, bp) then return 0, 0 end
  if ap < bp then return aw - bw - 1, units - (bp - ap) end
  return aw - bw, ap - bp
end
