package kind

import (
	"errors"
	"fmt"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// This file handles objects that are meant for the other side and cannot be projected. Objects that are not meant for
// it are withdrawn, and so deleted there.

// unsendable is published in place of such an object. It makes the replica leave what it has under that key, and has
// nothing that could be written. It depends only on the object, so it is the same after a restart. See frozenContent.
func unsendable(k engine.Key, uid string, err error) Item {
	reason := unsendableReason(err)
	return Item{Key: k, Content: frozenContent(uid, reason), Unsendable: reason}
}

func unsendableReason(err error) string {
	what := err.Error()
	if e, ok := errors.AsType[*rawjson.Error](err); ok {
		what = e.Reason // without the offset, which does not exist in the object
	}
	return fmt.Sprintf("the object cannot be sent: its JSON is not accepted (%s)", what)
}

// checkSent rejects what the owner publishes in place of an object.
func checkSent(p *payload) error {
	if string(p.body.Get("frozen")) != "true" {
		return nil
	}
	return reject(engine.Invalid, "the other side says: %.300q", rawjson.Text(p.body.Get("reason")))
}
