package redis

import "strings"

// class says how the proxy handles a command.
type class uint8

const (
	dedicated class = iota // forwarded; Redis can take long to answer
	stateless              // forwarded; Redis answers within Config.ReplyTimeout
	handshake              // HELLO, AUTH, SELECT, RESET: the proxy waits for the reply and follows the change
	connLocal              // CLIENT
	subscribe              // Redis confirms each channel with a message
	quit
	refused // would break the order of replies
)

// access says which arguments of a command are keys, and what the command does with them.
type access uint8

const (
	none   access = iota
	get           // one key
	mget          // all arguments are keys
	exists        // all arguments are keys
	strlen        // one key
	ttl           // one key
	write         // the first argument is a key; refused for agents' keys
	writes        // all arguments are keys; refused for agents' keys
)

type rule struct {
	class  class
	access access
}

// rules lists the known commands. The zero rule applies to all others.
var rules = map[string]rule{}

func init() {
	for _, group := range []struct {
		rule  rule
		names string
	}{
		{rule{stateless, get}, "GET"},
		{rule{stateless, mget}, "MGET"},
		{rule{stateless, exists}, "EXISTS"},
		{rule{stateless, strlen}, "STRLEN"},
		{rule{stateless, ttl}, "TTL PTTL"},
		{rule{stateless, write}, "SET SETNX SETEX PSETEX GETSET GETDEL GETEX APPEND EXPIRE PEXPIRE PERSIST"},
		{rule{stateless, writes}, "RENAME RENAMENX DEL UNLINK"},
		{rule{stateless, none}, "MSET TYPE INCR INCRBY DECR DECRBY PUBLISH PING ECHO SCAN KEYS DBSIZE TIME INFO HGET HSET " +
			"HDEL HGETALL HMGET HEXISTS HLEN LPUSH RPUSH LPOP RPOP LLEN LRANGE SADD SREM SMEMBERS SISMEMBER SCARD SPOP " +
			"ZADD ZREM ZRANGE ZSCORE ZCARD ZPOPMIN"},
		{rule{handshake, none}, "HELLO AUTH SELECT RESET"},
		{rule{connLocal, none}, "CLIENT"},
		{rule{subscribe, none}, "SUBSCRIBE UNSUBSCRIBE PSUBSCRIBE PUNSUBSCRIBE SSUBSCRIBE SUNSUBSCRIBE"},
		{rule{quit, none}, "QUIT"},
		{rule{refused, none}, "MONITOR SYNC PSYNC REPLCONF POST HOST:"}, // POST and HOST: come from a browser
	} {
		for name := range strings.FieldsSeq(group.names) {
			rules[name] = group.rule
		}
	}
}

// upper writes the name of a command in upper case into room. It truncates a name that is longer than any known name.
func upper(name []byte, room *[16]byte) []byte {
	n := copy(room[:], name)
	for i, c := range room[:n] {
		if 'a' <= c && c <= 'z' {
			room[i] = c - 'a' + 'A'
		}
	}
	return room[:n]
}

// isWord reports whether an argument equals a word, ignoring case.
func isWord(arg []byte, word string) bool {
	return len(arg) == len(word) && strings.EqualFold(string(arg), word)
}
