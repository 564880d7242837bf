/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates for tests, made on the spot. */
#ifndef STOCKADE_TESTS_CERTS_H
#define STOCKADE_TESTS_CERTS_H

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>

#include "fence/base/check.h"

/* A certificate and its key. */
struct cert {
    X509 *x509;
    EVP_PKEY *key;
};

/* What it says. Names may be NULL; `by` NULL: it signs itself. */
struct cert_wanted {
    const char *common_name;
    const char *names; /* as in "DNS:a.example,IP:127.0.0.1,URI:user:anna" */
    const struct cert *by;
    long days; /* until it expires; negative: it has */
    bool ca;
};

static inline void cert_extend(struct cert *cert, const struct cert *by, int nid, const char *value)
{
    X509V3_CTX context;

    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, by->x509, cert->x509, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    check(extension != NULL && X509_add_ext(cert->x509, extension, -1) == 1);
    X509_EXTENSION_free(extension);
}

static inline struct cert cert_make(const struct cert_wanted *wanted)
{
    struct cert cert = {X509_new(), EVP_EC_gen("P-256")};
    const struct cert *by = wanted->by != NULL ? wanted->by : &cert;
    X509_NAME *name = X509_get_subject_name(cert.x509);

    check(cert.key != NULL && X509_set_version(cert.x509, 2) == 1);
    ASN1_INTEGER_set(X509_get_serialNumber(cert.x509), (long)(size_t)cert.key & 0x7fffffff);
    X509_gmtime_adj(X509_getm_notBefore(cert.x509), -3L * 86400);
    X509_gmtime_adj(X509_getm_notAfter(cert.x509), wanted->days * 86400);
    if (wanted->common_name != NULL)
        X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                   (const unsigned char *)wanted->common_name, -1, -1, 0);
    X509_set_issuer_name(cert.x509, X509_get_subject_name(by->x509));
    X509_set_pubkey(cert.x509, cert.key);
    if (wanted->ca)
        cert_extend(&cert, by, NID_basic_constraints, "critical,CA:TRUE");
    if (wanted->names != NULL)
        cert_extend(&cert, by, NID_subject_alt_name, wanted->names);
    check(X509_sign(cert.x509, by->key, EVP_sha256()) > 0);
    return cert;
}

static inline void cert_free(struct cert *cert)
{
    X509_free(cert->x509);
    EVP_PKEY_free(cert->key);
}

/* The certificate, and where `with_key` its key, into a file. */
static inline void cert_write(const struct cert *cert, const char *path, bool with_key)
{
    FILE *file = fopen(path, "w");

    check(file != NULL && PEM_write_X509(file, cert->x509) == 1);
    if (with_key)
        check(PEM_write_PrivateKey(file, cert->key, NULL, NULL, 0, NULL, NULL) == 1);
    check(fclose(file) == 0);
}

#endif
