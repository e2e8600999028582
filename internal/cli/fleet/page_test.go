package fleet

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// The page is one file: it names nothing that a browser would fetch, but the stream.
func TestThePageNeedsNothingElse(t *testing.T) {
	text := string(thePage.content)
	for _, part := range []string{string(styles), string(script)} {
		if strings.Count(text, part) != 1 {
			t.Error("styles and script are not in the page, once")
		}
	}
	if found := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9]|@import|url\(|src=`).FindAllString(strings.ReplaceAll(text, "http://www.w3.org/2000/svg", ""), -1); len(found) > 0 {
		t.Errorf("the page fetches something: %q", found)
	}
	if strings.Contains(string(script), "</") || strings.Contains(string(styles), "</") {
		t.Error("styles or script end before their end")
	}
}

// Texts of strangers cannot become markup: the script has no way to make any, and the policy would not let it.
func TestTheScriptMakesNoMarkup(t *testing.T) {
	for _, way := range []string{"innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function(", "srcdoc", ".href", ".src", "DOMParser", "createContextualFragment",
		"localStorage", "fetch(", "XMLHttpRequest", "import("} {
		if strings.Contains(string(script), way) {
			t.Errorf("the script uses %s", way)
		}
	}
	for _, rule := range []string{"default-src 'none'", "script-src " + digest(script), "style-src " + digest(styles), "connect-src 'self'", "base-uri 'none'",
		"form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'"} {
		if !slices.Contains(strings.Split(thePage.policy, "; "), rule) {
			t.Errorf("the policy lacks %s: %s", rule, thePage.policy)
		}
	}
	if strings.Contains(thePage.policy, "unsafe") {
		t.Errorf("the policy is %s", thePage.policy)
	}
	if found := regexp.MustCompile(`(?i)\s(on[a-z]+|style)=`).FindAllString(string(frame), -1); len(found) > 0 {
		t.Errorf("the policy would not let the page do %q", found)
	}
}

// The frame is well formed, and has every element that the script looks for, once.
func TestTheFrameHasWhatTheScriptLooksFor(t *testing.T) {
	ids := map[string]int{}
	var within []string
	empty := []string{"meta", "link", "input"}
	tokens := html.NewTokenizer(bytes.NewReader(frame))
	for tokens.Next() != html.ErrorToken {
		switch token := tokens.Token(); token.Type {
		case html.StartTagToken:
			if !slices.Contains(empty, token.Data) {
				within = append(within, token.Data)
			}
			for _, a := range token.Attr {
				if a.Key == "id" {
					ids[a.Val]++
				}
			}
		case html.EndTagToken:
			if len(within) == 0 || within[len(within)-1] != token.Data {
				t.Fatalf("</%s> ends nothing: %v", token.Data, within)
			}
			within = within[:len(within)-1]
		default:
		}
	}
	if err := tokens.Err(); !errors.Is(err, io.EOF) || len(within) > 0 {
		t.Errorf("these do not end: %v, %v", within, err)
	}
	looked := regexp.MustCompile(`\$\("([a-z]+)"\)`).FindAllStringSubmatch(string(script), -1)
	if len(looked) < 5 {
		t.Fatalf("this test does not see what the script looks for: %v", looked)
	}
	for _, one := range looked {
		if ids[one[1]] != 1 {
			t.Errorf("the frame has #%s %d times", one[1], ids[one[1]])
		}
	}
}
