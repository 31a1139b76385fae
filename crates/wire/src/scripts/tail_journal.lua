-- tail_journal.lua: what is told and what is kept of starts and ends.
--
-- Purpose: while somebody looks on (the tail), tell in one message what a call has started and ended; and keep the ends
--   where the topic asks for it (the journal). Mostly neither is so, and nothing of this is made.
-- KEYS 1 meta
-- ARGV 3 wake-up channel
-- Invariants: no timer depends on it. What is refused here costs the call nothing, and so the journal, which is named
--   as meta is but for the end, is touched under pcall alone, behind all other writes.

local WATCHED = meta[6] or meta[5] and (tonumber(meta[5]) or 0) > now
local log_start, log_next, log_end, flush_log

if WATCHED then
  local is_watched = (tonumber(meta[5] or '') or 0) > now
  local count, age = string.match(meta[6] or '', '^([0-9]+):([0-9]+)$')
  count, age = tonumber(count or ''), tonumber(age or '')
  local journal = sub(KEYS[1], 1, -5) .. 'journal'
  -- A message takes no more than so many bytes, of which each entry has so many beside its key; a call trims no more
  -- entries than it could write.
  local MAX_MESSAGE_BYTES, ENTRY_BYTES, MAX_TRIMMED = 65536, 23, 2000
  local tail_entries, size, left_out, kept = {}, 0, 0, {}

  -- What is broken, or was not read, is zeros.
  local function padded(bytes, width)
    return #bytes == width and bytes or string.rep('\0', width)
  end

  local function add_tail_entry(what, key, record, attempt, at)
    if not is_watched then return end
    if size + ENTRY_BYTES + #key > MAX_MESSAGE_BYTES then
      left_out = left_out + 1
      return
    end
    size = size + ENTRY_BYTES + #key
    -- Written by others, it can be any number.
    if not (at > 0 and at < MAX_DEADLINE) then at = 0 end
    tail_entries[#tail_entries + 1] = what .. padded(attempt, 4) .. padded(sub(record, 2, 9), 8) .. struct.pack('>I8I2', at, #key) .. key
  end

  -- An attempt begins.
  log_start = function(key, record, state)
    add_tail_entry('B', key, record, sub(state, 11, 14), present_deadline(record, state))
  end

  -- An attempt has ended, and its timer has not.
  log_next = add_tail_entry

  -- A timer has ended.
  -- state: none, if it was never claimed
  -- at: the deadline of what follows it, or 0
  log_end = function(what, key, record, state, at)
    local attempt = state and sub(state, 11, 14) or '\0\0\0\1'
    add_tail_entry(what, key, record, attempt, at)
    if not age then return end
    local n = #kept
    kept[n + 1] = now
    kept[n + 2] = '\1' .. what .. padded(sub(record, 2, 9), 8) .. padded(sub(record, 10, 17), 8) .. padded(attempt, 4) .. key
  end

  local function trim()
    local there = tonumber(redis.pcall('ZCARD', journal)) or 0
    local old = tonumber(redis.pcall('ZCOUNT', journal, '-inf', '(' .. string.format('%.0f', now - age))) or 0
    local excess = math.min(math.max(there - count, old), MAX_TRIMMED)
    if excess > 0 then redis.pcall('ZREMRANGEBYRANK', journal, 0, excess - 1) end
  end

  -- Last of all. trims: although nothing has ended
  flush_log = function(trims)
    if #kept > 0 then redis.pcall('ZADD', journal, unpack(kept)) end
    if age and (trims or #kept > 0) then trim() end
    if #tail_entries > 0 then
      redis.pcall('SPUBLISH', ARGV[3], 't' .. struct.pack('>I8I4', now, left_out) .. table.concat(tail_entries))
    end
  end
end
