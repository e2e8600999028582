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

// A browser fetches nothing but the page and the stream.
func TestPage_HasNoExternalResources(t *testing.T) {
	text := string(thePage.content)
	for _, part := range []string{string(styles), string(script)} {
		if strings.Count(text, part) != 1 {
			t.Error("styles and script must be in the page once")
		}
	}
	if found := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9]|@import|url\(|src=`).FindAllString(strings.ReplaceAll(text, "http://www.w3.org/2000/svg", ""), -1); len(found) > 0 {
		t.Errorf("the page fetches %q", found)
	}
	if strings.Contains(string(script), "</") || strings.Contains(string(styles), "</") {
		t.Error("styles or script have a closing tag")
	}
}

// Untrusted text cannot become markup: the script creates none, and the policy forbids it.
func TestScript_CreatesNoMarkup(t *testing.T) {
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
		t.Errorf("the policy forbids %q", found)
	}
}

// The frame is well formed and has each element that the script uses once.
func TestFrame_HasElementsOfScript(t *testing.T) {
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
				t.Fatalf("</%s> closes nothing: %v", token.Data, within)
			}
			within = within[:len(within)-1]
		default:
		}
	}
	if err := tokens.Err(); !errors.Is(err, io.EOF) || len(within) > 0 {
		t.Errorf("not closed: %v, %v", within, err)
	}
	used := regexp.MustCompile(`\$\("([a-z]+)"\)`).FindAllStringSubmatch(string(script), -1)
	if len(used) < 5 {
		t.Fatalf("found only these elements in the script: %v", used)
	}
	for _, one := range used {
		if ids[one[1]] != 1 {
			t.Errorf("the frame has #%s %d times", one[1], ids[one[1]])
		}
	}
}
