package cli

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// notFound reports whether the API server has said that there is no such object.
// A 404 without a Status may come from a proxy or a load balancer in front of it,
// and says nothing.
func notFound(err error) bool { return apierrors.IsNotFound(err) && !foreign(err) }

// foreign reports whether an answer has no Status, so that it may not be the API
// server's: the client makes one up then.
func foreign(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
