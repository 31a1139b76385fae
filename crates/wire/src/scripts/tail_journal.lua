-- tail_journal.lua: Publish starts and ends of attempts, and keep ends in the journal.
--
-- Purpose: While an operator watches a topic (the tail), each call publishes in one message which attempts it has started
--   and ended. If the topic has a journal, each call also keeps there how timers ended. Mostly the topic has neither, and
--   then no function of this part is created.
-- KEYS 1 meta
-- ARGV 3 wake-up channel
-- Invariants: No timer depends on tail or journal. An error here does not fail the call: the journal, whose name is that of
--   meta with another last word, is changed only under pcall and behind all other writes.

-- True if a program watches the topic until meta[5], in ms, or if meta[6] has limits of a journal.
local LOGGED = meta[6] or meta[5] and (tonumber(meta[5]) or 0) > now
local log_attempt_start, log_attempt_end, log_timer_end, flush_log

if LOGGED then
  local is_watched = (tonumber(meta[5] or '') or 0) > now
  local max_entries, max_age = string.match(meta[6] or '', '^([0-9]+):([0-9]+)$')
  max_entries, max_age = tonumber(max_entries or ''), tonumber(max_age or '')
  local journal = sub(KEYS[1], 1, -5) .. 'journal'
  -- The maximum size of a message, the bytes of its entry without the key, and how many old entries of the journal one call
  -- deletes at most. These are no fewer than one call can add.
  local MAX_MESSAGE_BYTES, ENTRY_BYTES, MAX_TRIMMED = 65536, 23, 2000
  local tail_entries, size, left_out, journal_entries = {}, 0, 0, {}

  -- Returns zeros for a field that is truncated or was not read.
  local function padded(bytes, width)
    return #bytes == width and bytes or string.rep('\0', width)
  end

  local function add_tail_entry(event, key, record, attempt, at)
    if not is_watched then return end
    if size + ENTRY_BYTES + #key > MAX_MESSAGE_BYTES then
      left_out = left_out + 1
      return
    end
    size = size + ENTRY_BYTES + #key
    -- Another program may have written any number.
    if not (at > 0 and at < MAX_DEADLINE) then at = 0 end
    tail_entries[#tail_entries + 1] = event .. padded(attempt, 4) .. padded(sub(record, 2, 9), 8)
      .. struct.pack('>I8I2', at, #key) .. key
  end

  -- Logs that an attempt starts.
  log_attempt_start = function(key, record, state)
    add_tail_entry('B', key, record, sub(state, 11, 14), present_deadline(record, state))
  end

  -- Logs that an attempt has ended, but not its timer.
  log_attempt_end = add_tail_entry

  -- Logs that a timer has ended.
  -- state: nil if it was never claimed.
  -- at: the deadline of the timer that follows it, or 0.
  log_timer_end = function(event, key, record, state, at)
    local attempt = state and sub(state, 11, 14) or '\0\0\0\1'
    add_tail_entry(event, key, record, attempt, at)
    if not max_age then return end
    local n = #journal_entries
    journal_entries[n + 1] = now
    journal_entries[n + 2] = '\1' .. event .. padded(sub(record, 2, 9), 8) .. padded(sub(record, 10, 17), 8)
      .. padded(attempt, 4) .. key
  end

  local function trim()
    local total = tonumber(redis.pcall('ZCARD', journal)) or 0
    local old = tonumber(redis.pcall('ZCOUNT', journal, '-inf', '(' .. string.format('%.0f', now - max_age))) or 0
    local excess = math.min(math.max(total - max_entries, old), MAX_TRIMMED)
    if excess > 0 then redis.pcall('ZREMRANGEBYRANK', journal, 0, excess - 1) end
  end

  -- Called last, behind all other writes. With `trims` the journal is trimmed although no timer has ended.
  flush_log = function(trims)
    if #journal_entries > 0 then redis.pcall('ZADD', journal, unpack(journal_entries)) end
    if max_age and (trims or #journal_entries > 0) then trim() end
    if #tail_entries > 0 then
      redis.pcall('SPUBLISH', ARGV[3], 't' .. struct.pack('>I8I4', now, left_out) .. table.concat(tail_entries))
    end
  end
end
