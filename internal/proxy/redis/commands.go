package redis

import "strings"

// class says how a command travels.
type class uint8

const (
	private   class = iota // changes the connection in a way that we do not follow: from now on the client has its own
	shared                 // depends on nothing but identity and database: takes a lane
	handshake              // HELLO, AUTH, SELECT: we follow what they change
	cosmetic               // own connection, but nothing is lost with it
	subscribe              // answered with messages
	reset
	quit
	refused // would break the order of requests and replies, or passes by the rules for agents' keys
)

// access says which of a command's arguments are keys, and what it does with them when they are an agent's.
type access uint8

const (
	none   access = iota
	get           // one key
	mget          // keys only
	exists        // keys only
	strlen        // one key
	ttl           // one key
	write         // refused for agents' keys; the first argument is a key
	writes        // the same, and all arguments are keys
)

type rule struct {
	class  class
	access access
}

// rules lists the commands that are known. Whatever is absent is private.
var rules = map[string]rule{
	"GET":    {shared, get},
	"MGET":   {shared, mget},
	"EXISTS": {shared, exists},
	"STRLEN": {shared, strlen},
	"TTL":    {shared, ttl},
	"PTTL":   {shared, ttl},

	"SET":      {shared, write},
	"SETNX":    {shared, write},
	"SETEX":    {shared, write},
	"PSETEX":   {shared, write},
	"GETSET":   {shared, write},
	"GETDEL":   {shared, write},
	"GETEX":    {shared, write},
	"APPEND":   {shared, write},
	"EXPIRE":   {shared, write},
	"PEXPIRE":  {shared, write},
	"PERSIST":  {shared, write},
	"RENAME":   {shared, writes},
	"RENAMENX": {shared, writes},
	"DEL":      {shared, writes},
	"UNLINK":   {shared, writes},

	"MSET": {class: shared}, "TYPE": {class: shared}, "INCR": {class: shared}, "INCRBY": {class: shared},
	"DECR": {class: shared}, "DECRBY": {class: shared}, "PUBLISH": {class: shared}, "PING": {class: shared},
	"ECHO": {class: shared}, "SCAN": {class: shared}, "KEYS": {class: shared}, "DBSIZE": {class: shared},
	"TIME": {class: shared}, "INFO": {class: shared}, "HGET": {class: shared}, "HSET": {class: shared},
	"HDEL": {class: shared}, "HGETALL": {class: shared}, "HMGET": {class: shared}, "HEXISTS": {class: shared},
	"HLEN": {class: shared}, "LPUSH": {class: shared}, "RPUSH": {class: shared}, "LPOP": {class: shared},
	"RPOP": {class: shared}, "LLEN": {class: shared}, "LRANGE": {class: shared}, "SADD": {class: shared},
	"SREM": {class: shared}, "SMEMBERS": {class: shared}, "SISMEMBER": {class: shared}, "SCARD": {class: shared},
	"SPOP": {class: shared}, "ZADD": {class: shared}, "ZREM": {class: shared}, "ZRANGE": {class: shared},
	"ZSCORE": {class: shared}, "ZCARD": {class: shared}, "ZPOPMIN": {class: shared},

	"HELLO": {class: handshake}, "AUTH": {class: handshake}, "SELECT": {class: handshake},
	"CLIENT":    {class: cosmetic},
	"SUBSCRIBE": {class: subscribe}, "UNSUBSCRIBE": {class: subscribe},
	"PSUBSCRIBE": {class: subscribe}, "PUNSUBSCRIBE": {class: subscribe},
	"SSUBSCRIBE": {class: subscribe}, "SUNSUBSCRIBE": {class: subscribe},
	"RESET": {class: reset}, "QUIT": {class: quit},

	"MONITOR": {class: refused}, "SYNC": {class: refused}, "PSYNC": {class: refused}, "REPLCONF": {class: refused},
	"POST": {class: refused}, "HOST:": {class: refused}, // a browser that was sent here
}

// upper writes the name of a command in capitals into room; names that do not fit are cut, and then unknown.
func upper(name []byte, room *[16]byte) []byte {
	n := copy(room[:], name)
	for i, c := range room[:n] {
		if 'a' <= c && c <= 'z' {
			room[i] = c - 'a' + 'A'
		}
	}
	return room[:n]
}

// isWord compares an argument with a word, whatever the case of its letters.
func isWord(arg []byte, word string) bool {
	return len(arg) == len(word) && strings.EqualFold(string(arg), word)
}
