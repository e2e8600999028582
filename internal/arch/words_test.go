package arch

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// A retired word or phrase must not occur in the repository. CONTRIBUTING.md has the rules of the language.
type retired struct {
	text string // all forms of a word, or the words of a phrase
	use  string // what to write instead
}

// retiredWords match whole words and parts of camel-case names, in any case: "door" matches openDoor, not indoors.
var retiredWords = []retired{
	{"anew", "again"},
	{"barred", "refused"},
	{"book books booked", "record, table"},
	{"breath breaths", "pause"},
	{"calm calms", "idle, recovered"},
	{"carefree", "the fact in plain words"},
	{"chore chores", "task"},
	{"complain complains complained complaint complaints complainer", "report, write outage"},
	{"deaf", "unresponsive, stalled"},
	{"desk desks", "work queue, or the name of the component"},
	{"door doors", "endpoint, listener"},
	{"errand errands", "task, work queue"},
	{"farewell", "release"},
	{"hop hops", "forward"},
	{"hush", "close, suppress"},
	{"keeper keepers", "controller, reconciler, manager"},
	{"keepsake", "release"},
	{"knock knocks", "probe"},
	{"lane lanes", "queue, connection"},
	{"lest", "so that ... not"},
	{"likewise", "also"},
	{"moan moans moaned moaning", "report"},
	{"mood moods", "write health"},
	{"nobody", "no user, no client, none"},
	{"office offices", "the name of the component"},
	{"outlook", "estimate"},
	{"porter porters", "the name of the component"},
	{"pretender pretenders", "impersonator"},
	{"roster rosters", "list, registry"},
	{"seat seats", "session, slot"},
	{"somebody", "a user, a client, another process"},
	{"stray strays", "unexpected, misplaced"},
	{"tend tends tended tending", "reconcile"},
	{"trouble troubles troubled", "write outage, fault, error"},
	{"truce truces", "alias, pause"},
	{"twin twins", "replica"},
	{"verdict verdicts", "result, decision"},
	{"vouch vouches vouched", "signed by"},
	{"weather", "fault pattern, profile"},
	{"whoever whomever", "the actor"},
	{"wish wishes wished", "request, option"},
}

// retiredPhrases match whole words of running text, in any case, also over a line break.
var retiredPhrases = []retired{
	{"can not", "cannot"},
	{"any more", "no longer"},
	{"for ever", "forever, indefinitely"},
	{"as ever", "as usual"},
	{"in force", "accepted, active"},
	{"a person", "a user"},
	{"people", "users"},
	{"went back", "store regression, restored from a backup"},
	{"is away", "is disconnected"},
	{"good for", "valid for"},
	{"beside", "in addition to, next to"},
	{"tells", "reports, returns"},
	{"told", "notified, informed"},
	{"meanwhile", "in the meantime, while ..."},
	{"believe", "trust"},
	{"believes", "trusts"},
	{"believed", "trusted"},
	{"turned away", "refused"},
	{"sent away", "refused"},
	{"let go", "release, remove"},
	{"let in", "accept, permit"},
	{"lets in", "accepts, permits"},
	{"held back", "held"},
	{"put right", "correct, reconcile"},
	{"the truth", "the owner"},
	{"of those", "of these, or the noun"},
	{"shall", "must, will"},
	{"under mu", "The caller must hold mu."},
}

// A clause that starts with "who" and one of these verbs has no actor. Name it: user, operator, client, caller, peer.
var verbsAfterWho = []string{"is", "has", "was", "asks", "can", "may", "does", "cannot"}

// exceptions lists files in which a word is allowed, with the reason.
var exceptions = []struct{ path, word, reason string }{
	{"internal/arch/words_test.go", "*", "the table itself"},
	{"CONTRIBUTING.md", "*", "examples of retired words"},
	{"bench/compare/renamed.go", "*", "old names of figures"},
	{"bench/compare/main_test.go", "nobody", "old names of figures"},
}

// pending lists the directories whose language is not plain yet. Remove a line when its directory is done; add none.
var pending = []string{}

func TestWords_NoneRetired(t *testing.T) {
	fsys, _ := thisModule(t)
	violations, err := checkWords(fsys)
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]int{}
	for _, v := range violations {
		if dir := pendingDir(v.file); dir != "" {
			left[dir]++
			continue
		}
		t.Error(v)
	}
	for _, dir := range pending {
		if left[dir] == 0 {
			t.Logf("%s has no retired word left: remove it from the list pending", dir)
		}
	}
}

func TestWordsExceptions_AreNeeded(t *testing.T) {
	fsys, _ := thisModule(t)
	for _, e := range exceptions {
		text, err := fs.ReadFile(fsys, e.path)
		if err != nil || e.reason == "" || !slices.ContainsFunc(findRetired(e.path, string(text)), func(v wordUse) bool {
			return e.word == "*" || v.word == e.word
		}) {
			t.Errorf("exception %q of %s is not needed: remove it (%v)", e.word, e.path, err)
		}
	}
}

func TestCheckWords_FindsWordsAndPhrases(t *testing.T) {
	for _, tc := range []struct {
		name, file, text string
		want             []string
	}{
		{"word in a comment", "a.go", "// A chore of mine.", []string{"chore"}},
		{"first part of a name", "a.go", "var deskLine int", []string{"desk"}},
		{"last part of a name", "a.go", "func openDoor() {}", []string{"door"}},
		{"part of a snake-case name", "a.yaml", "api_trouble: 1", []string{"trouble"}},
		{"part of a longer word", "a.go", "// An indoor reporter, a bookkeeper.", nil},
		{"phrase", "a.md", "It can not do that.", []string{"can not"}},
		{"phrase over a line break", "a.md", "It can\nnot do that.", []string{"can not"}},
		{"phrase over a line break of a comment", "a.go", "\t// It can\n\t// not do that.", []string{"can not"}},
		{"phrase in capitals", "a.md", "People use it.", []string{"people"}},
		{"relative clause without an actor", "a.md", "Who has the key can sign.", []string{"who has"}},
		{"relative clause with an actor", "a.md", "A user who has the key can sign.", nil},
		{"help text", "internal/cli/testdata/help/ctl.txt", "See whoever is there", []string{"whoever"}},
		{"script", "hack/test", "# nobody reads this", []string{"nobody"}},
		{"generated code", "api/a.pb.go", "// nobody", nil},
		{"corpus of a fuzzer", "a/testdata/fuzz/FuzzA/1.txt", "nobody", nil},
		{"module checksums", "go.sum", "example.org/nobody", nil},
	} {
		violations, err := checkWords(fstest.MapFS{tc.file: {Data: []byte(tc.text)}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, v := range violations {
			got = append(got, v.word)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: found %q, want %q", tc.name, got, tc.want)
		}
	}
}

// A wordUse is one occurrence of a retired word.
type wordUse struct {
	file string
	line int
	word string
	use  string
}

func (v wordUse) String() string {
	return fmt.Sprintf("%s:%d: %q is retired, use: %s", v.file, v.line, v.word, v.use)
}

// checkWords returns the retired words in all text files below fsys, except where an exception allows them.
func checkWords(fsys fs.FS) ([]wordUse, error) {
	var violations []wordUse
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(notOurText, name), entry.IsDir() && strings.HasSuffix(name, "/testdata/fuzz"):
			return fs.SkipDir
		case entry.IsDir() || !isText(name):
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		violations = append(violations, slices.DeleteFunc(findRetired(name, string(text)), excepted)...)
		return nil
	})
	return violations, err
}

// notOurText lists directories that are not part of the repository or were written by others.
var notOurText = []string{".git", "bin", "dist", "ui/node_modules", "internal/fleetui/dist"}

// isText reports whether a file has text that users or contributors read.
func isText(name string) bool {
	if within(name, "hack") || path.Base(name) == "Makefile" || path.Base(name) == "Dockerfile" {
		return true
	}
	return !strings.HasSuffix(name, ".pb.go") &&
		slices.Contains([]string{".go", ".md", ".yaml", ".yml", ".tpl", ".txt", ".proto", ".js", ".mjs", ".ts", ".tsx", ".html", ".css", ".json", ".golden"}, path.Ext(name))
}

func excepted(v wordUse) bool {
	for _, e := range exceptions {
		if v.file == e.path && (e.word == "*" || e.word == v.word) {
			return true
		}
	}
	return false
}

func pendingDir(file string) string {
	for _, dir := range pending {
		if within(file, dir) {
			return dir
		}
	}
	return ""
}

var (
	wordIndex   = indexWords()
	phraseIndex = indexPhrases()
)

func indexWords() map[string]retired {
	index := map[string]retired{}
	for _, r := range retiredWords {
		for form := range strings.FieldsSeq(r.text) {
			index[form] = r
		}
	}
	return index
}

// indexPhrases returns the phrases by their first word.
func indexPhrases() map[string][]retired {
	index := map[string][]retired{}
	for _, r := range retiredPhrases {
		first, _, _ := strings.Cut(r.text, " ")
		index[first] = append(index[first], r)
	}
	return index
}

// A textToken is a word or a punctuation mark of a file.
type textToken struct {
	text string
	line int
}

// tokens splits a text into words of ASCII letters and the punctuation that ends a clause. Markers of comments are no
// tokens, so that a phrase can continue on the next line.
func tokens(text string) []textToken {
	var list []textToken
	line := 1
	for i := 0; i < len(text); i++ {
		start := i
		for i < len(text) && isLetter(text[i]) {
			i++
		}
		if i > start {
			list = append(list, textToken{text[start:i], line})
		}
		if i == len(text) {
			break
		}
		switch text[i] {
		case '\n':
			line++
		case '.', ',', ':', ';', '(', ')', '"', '|':
			list = append(list, textToken{text[i : i+1], line})
		}
	}
	return list
}

func isLetter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// nameParts returns the parts of a camel-case name in lower case: "getURLPath" has "get", "url" and "path".
func nameParts(name string) []string {
	var parts []string
	start := 0
	for i := 1; i <= len(name); i++ {
		if i == len(name) || isUpper(name[i]) && !isUpper(name[i-1]) {
			parts = append(parts, strings.ToLower(name[start:i]))
			start = i
		} else if !isUpper(name[i]) && isUpper(name[i-1]) && i-1 > start {
			parts = append(parts, strings.ToLower(name[start:i-1]))
			start = i - 1
		}
	}
	return parts
}

func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }

// findRetired returns the retired words and phrases of one file, in the order of their lines.
func findRetired(file, text string) []wordUse {
	var found []wordUse
	all := tokens(text)
	for i, tok := range all {
		add := func(word, use string) {
			found = append(found, wordUse{file: file, line: tok.line, word: word, use: use})
		}
		for _, part := range nameParts(tok.text) {
			if r, ok := wordIndex[part]; ok {
				add(part, r.use)
			}
		}
		for _, phrase := range phraseIndex[strings.ToLower(tok.text)] {
			if startsWith(all[i:], phrase.text) {
				add(phrase.text, phrase.use)
			}
		}
		if clauseWithoutActor(all, i) {
			add("who "+all[i+1].text, "user, operator, client, caller, peer")
		}
	}
	return found
}

func startsWith(list []textToken, phrase string) bool {
	words := strings.Fields(phrase)
	return len(list) >= len(words) && !slices.ContainsFunc(words, func(word string) bool {
		tok := list[0]
		list = list[1:]
		return !strings.EqualFold(tok.text, word)
	})
}

// clauseWithoutActor reports whether a sentence or clause starts with "who" at index i.
func clauseWithoutActor(all []textToken, i int) bool {
	if !strings.EqualFold(all[i].text, "who") || i+1 == len(all) || !slices.Contains(verbsAfterWho, all[i+1].text) {
		return false
	}
	return all[i].text == "Who" || i > 0 && !isLetter(all[i-1].text[0])
}
