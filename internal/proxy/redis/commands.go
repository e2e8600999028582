package redis

import "strings"

// class says how the proxy handles a command. A command that is not listed is forwarded, unless it names a key of an agent.
type class uint8

const (
	keyed     class = iota
	keyless         // forwarded without a look at the arguments
	handshake       // the proxy waits for the reply and follows the change
	subscribe       // Redis confirms each channel with a message
	quit
	refused // would break the order of replies
)

var classes = map[string]class{}

func init() {
	for class, names := range map[class]string{
		keyless:   "PING ECHO PUBLISH MULTI",
		handshake: "HELLO AUTH SELECT",
		subscribe: "SUBSCRIBE UNSUBSCRIBE PSUBSCRIBE PUNSUBSCRIBE",
		quit:      "QUIT",
		refused:   "RESET MONITOR SYNC PSYNC REPLCONF SSUBSCRIBE SUNSUBSCRIBE",
	} {
		for name := range strings.FieldsSeq(names) {
			classes[name] = class
		}
	}
}

// commandName returns the name of a command in upper case. It truncates a name that is longer than any known name.
func commandName(args [][]byte) string {
	return strings.ToUpper(string(args[0][:min(len(args[0]), 16)]))
}

// isWord reports whether an argument equals a word, ignoring case.
func isWord(arg []byte, word string) bool {
	return len(arg) == len(word) && strings.EqualFold(string(arg), word)
}
