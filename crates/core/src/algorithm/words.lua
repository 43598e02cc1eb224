-- What all parts of the script share.

local spread, unpack, pack, byte = unpack, struct.unpack, struct.pack, string.byte

-- The instant of the decision.
local now = 0
