package kind

import (
	"errors"
	"fmt"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// This file is about objects that are meant for the other side and that this side
// cannot project: not to be confused with objects that are not meant for it. Those
// are withdrawn, and so deleted there.

// unsendable is what the owner publishes in place of such an object: enough that
// the replica leaves alone what it has under that key, and nothing that could be
// written there. It depends on nothing but the object, so it is the same after a
// restart. See frozenContent.
func unsendable(k engine.Key, uid string, err error) Item {
	reason := unsendableReason(err)
	return Item{Key: k, Content: frozenContent(uid, reason), Unsendable: reason}
}

func unsendableReason(err error) string {
	what := err.Error()
	if e, ok := errors.AsType[*rawjson.Error](err); ok {
		what = e.Reason // without the offset, which is none in the object
	}
	return fmt.Sprintf("the object cannot be sent: its JSON is not accepted (%s)", what)
}

// checkSent refuses what the owner publishes in place of an object.
func checkSent(p *payload) error {
	if string(p.body.Get("frozen")) != "true" {
		return nil
	}
	return reject(engine.Invalid, "the other side says: %.300q", rawjson.Text(p.body.Get("reason")))
}
