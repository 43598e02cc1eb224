-- What the machines share.

local sub = string.sub

-- The state of one counter as it is read: two integers (three where two counts share one), the start of an overage, marks, and what is known of
-- marks that are kept elsewhere, in blocks.
local fresh, word, previous, over, marks, middle = 0, 0, 0, 0, "", ""
-- What is to be stored instead. Of the blocks, if they are not as they were: those from `from` to before `to` stay, `changed` is `block` now,
-- and `added` come after them.
local new_fresh, new_word, new_previous, new_over, new_marks, new_middle, new_edit = 0, 0, 0, 0, "", "", nil
-- Gets a block by its number, from 0 on; it ends with the mark of the given instant. Set by whoever keeps them.
local read_block
-- The cost that is asked for, whose slots these are, and when what is given back was charged.
local cost, lease, charged_at = 0, "\0\0\0\0\0\0\0\0", 0
-- The answer; `retry` is nil for never.
local allowed, overage, remaining, reset, retry, delay, excess = true, false, 0, 0, 0, 0, 0
